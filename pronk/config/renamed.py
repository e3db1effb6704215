"""Keys that have been renamed. The old name is understood for one release, with one line that says the new name."""

from __future__ import annotations

from typing import Any

from pronk.config.trees import MISSING, merged, pop

# Old name -> new name, of a key or of a whole section.
RENAMED = {
    # Until 0.3:
    "launch": "cluster",
    "transport.address": "gateway.address",
    "transport.certificate": "gateway.certificate",
    "transport.private_key": "gateway.private_key",
    "transport.client_ca": "gateway.client_ca",
    "transport.token_file": "gateway.token_file",
    "transport.insecure": "gateway.insecure",
    "transport.max_actors": "gateway.max_actors",
    "transport.keepalive_seconds": "gateway.keepalive_seconds",
}


class RenamedKey(FutureWarning):
    """A configuration uses the old name of a key."""


def rename_keys(tree: dict[str, Any], defaults: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the plain data with new names instead of old ones, and a sentence for each that was renamed.

    A value that is the default gets no sentence, because the files that Pronk writes list every key.
    """
    notes = []
    for old, new in RENAMED.items():
        tree, value = pop(tree, old)
        if value is MISSING:
            continue
        change = value
        for key in reversed(new.split(".")):
            change = {key: change}
        tree = merged(tree, change)
        if merged(defaults, change) != defaults:
            notes.append(f"{old} is now called {new}; the old name will not work in the next release")
    return tree, notes
