"""Which code a run's configuration names, and whether this account has trained with it before.

A configuration can name any function of any module (`env.id=subprocess:check_call`), with arguments. Training one's own
file imports and calls it, which is what the user asked for; opening a run that somebody else made must not. So `train`
remembers what it was asked to import, in a file of the user's, and opening a run is refused if it names anything else,
unless the user trusts its author (`--trust`).

    ~/.config/pronk/known_code    a line for each name with its arguments: their SHA-256. Never the names themselves

The file belongs to the account, not to the run: a run may be moved or copied, and nothing in it can vouch for itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pronk.config import Config, EnvConfig, ResolvedConfig
from pronk.types import UserError

# Packages of environments. Importing one registers its ids, and `package:Id-v0` names nothing else of it.
KNOWN_PACKAGES = {
    "ale_py",
    "gymnasium",
    "gymnasium_robotics",
    "highway_env",
    "minatar",
    "minigrid",
    "minihack",
    "nle",
    "popgym",
    "shimmy",
    "vizdoom",
}
ANOTHER_MODULE = ("GymV21Environment", "GymV26Environment")  # ids of shimmy whose arguments name a module to import


class NamedCode(NamedTuple):
    """Something to import and call."""

    key: str
    """The setting that names it."""
    address: str
    """`module:attribute`, or an id."""
    arguments: Any

    def digest(self) -> str:
        """Return the line of `known_code`."""
        return hashlib.sha256(repr((self.address, canonical(self.arguments))).encode("utf-8", "replace")).hexdigest()


def canonical(value: Any) -> Any:
    """Return plain data whose `repr` does not depend on the order of keys, or on lists being tuples."""
    if isinstance(value, dict):
        return sorted((repr(key), canonical(part)) for key, part in value.items())
    if isinstance(value, list | tuple):
        return [canonical(part) for part in value]
    return repr(value)


class UntrustedError(UserError):
    """A run names code that this account has not trained with."""

    def __init__(self, what: str) -> None:
        self._what = what
        super().__init__(self.allowed_by("trust=True"))

    def allowed_by(self, option: str) -> str:
        """Return the message, which names the option that allows it: `trust=True`, or `--trust` on the command line."""
        return f"{self._what}; if you trust its author, allow it with {option}"


def code_to_play(config: Config | ResolvedConfig) -> list[NamedCode]:
    """Return what playing a run imports that is neither Pronk's nor a known family of environments."""
    found = [code for task in config.env.each_task for code in code_of_environment(task)]
    if ":" in config.network.name:
        found.append(NamedCode("network.name", config.network.name, config.network.kwargs))
    return list({code.digest(): code for code in found}.values())


def code_to_train(config: Config | ResolvedConfig) -> list[NamedCode]:
    """Return what training a run imports, likewise."""
    found = code_to_play(config)
    others = [("loss.name", config.loss.name, config.loss.kwargs), ("actors.inference", config.actors.inference, None)]
    others += [("run.sinks", name, None) for name in config.run.sinks]
    return [*found, *(NamedCode(*other) for other in others if ":" in other[1])]


def code_of_environment(config: EnvConfig) -> list[NamedCode]:
    found = [] if is_known_id(config.id) else [NamedCode("env.id", config.id, config.kwargs)]
    wrappers = (item for entry in config.wrappers for item in entry.items())
    return found + [NamedCode("env.wrappers", name, value) for name, value in wrappers if ":" in name]


def is_known_id(name: str) -> bool:
    """Whether making this environment imports only Pronk's own code or that of a known family."""
    module, colon, rest = name.partition(":")
    if not colon:
        return not name.startswith(ANOTHER_MODULE)  # registered by what is installed here
    if module == "envpool":
        return True
    if module == "pettingzoo":  # of PettingZoo, unless a module of that name is found first; see its adapter
        top = rest.partition(".")[0]
        return top.isidentifier() and ":" not in rest and importlib.util.find_spec(top) is None
    # An id that ends in a version cannot be the name of an attribute.
    is_id = re.search(r"-v\d+$", rest) is not None and not rest.startswith(ANOTHER_MODULE)
    return is_id and module.partition(".")[0] in KNOWN_PACKAGES


def require_known(found: Iterable[NamedCode], source: str, trust: bool) -> None:
    """Raise `UntrustedError` if a run names code unknown to this account, unless its author is trusted."""
    strange = [] if trust else unknown(found)
    if strange:
        names = ", ".join(f"{code.address} ({code.key})" for code in strange)
        raise UntrustedError(f"{source} would import and call {names}, which you have not trained with here")


def unknown(found: Iterable[NamedCode]) -> list[NamedCode]:
    found = list(found)
    known = read_known() if found else set()
    return [code for code in found if code.digest() not in known]


def remember(config: Config, say: Callable[[str], None]) -> None:
    """Record what this account trains with. Where that cannot be written, it is reported; training continues."""
    missing = unknown(code_to_train(config))
    if not missing:
        return
    file = known_file()
    try:
        if file is None:
            raise OSError("there is no home directory")
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One short write at the end of the file: trainings that start at the same time do not disturb one another.
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, "".join(f"{code.digest()}\n" for code in missing).encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        names = ", ".join(code.address for code in missing)
        say(f"cannot remember that you trained with {names} ({error}): opening this run will ask for your trust")


def read_known() -> set[str]:
    """Return the digests of what this account has trained with."""
    file = known_file()
    try:
        return set(file.read_text(encoding="ascii", errors="replace").split()) if file else set()
    except OSError:
        return set()


def known_file() -> Path | None:
    """Return where this account's digests are; None where it has no home directory."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))
    return folder / "pronk" / "known_code" if folder.is_absolute() else None
