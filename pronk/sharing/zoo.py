"""Lists shared policies: the folders that `push` wrote below one, or those of an account on the Hugging Face Hub.

Everything listed comes from the front matter of their cards, so the Hub is asked once and nothing is downloaded.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pronk.config import plain_yaml
from pronk.config.named import import_extra
from pronk.sharing.pushing import LOCAL, MARK
from pronk.types import Failure, UserError

MOST_BYTES = 1_000_000  # of a card


class Entry(NamedTuple):
    """A shared policy."""

    name: str
    environment: str
    score: str | None  # `475.0 +/- 21.3`; None: shared without an evaluation
    episodes: int | None  # that were played for it; None: the card does not say
    use: str  # a line of Python or shell


def zoo(where: str | Path = "zoo") -> list[Entry]:
    """Return the shared policies in a folder (also in folders below it), or of an owner on the Hub; by environment."""
    text = str(where)
    folder = Path(text).expanduser()
    is_local = text.startswith(LOCAL) or text in (".", "..", "zoo") or folder.exists()
    if is_local and not folder.is_dir():
        raise UserError(f"there is no folder {text}; `pronk push last ./zoo/NAME` makes the first policy of a zoo")
    if not is_local and not re.fullmatch(r"[\w.-]+", text):
        raise UserError(f"{text!r} is neither a folder nor an owner on the Hub; write a folder as ./{text}")
    entries = of_folder(folder) if is_local else of_owner(text)
    return sorted(entries, key=lambda entry: (entry.environment, entry.name))


def of_folder(folder: Path) -> list[Entry]:
    """Return the policies below a folder. What `push` did not write is skipped."""
    entries = []
    for readme in sorted(folder.rglob("README.md")):
        weights = readme.parent / "model.safetensors"
        if not weights.is_file() or readme.stat().st_size > MOST_BYTES:
            continue
        front = front_matter_of(readme.read_text(encoding="utf-8", errors="replace"))
        if front is not None:
            name = readme.parent.relative_to(folder).as_posix()
            use = f"pronk.load({str(weights)!r})"
            entries.append(entry_of(folder.resolve().name if name == "." else name, front, use))
    return entries


def front_matter_of(card: str) -> Mapping[str, Any] | None:
    """Return the front matter of a card that Pronk wrote; None for any other file."""
    parts = card.split("---\n", 2)
    if len(parts) < 3 or parts[0].strip() or MARK not in parts[1]:
        return None
    try:
        front = plain_yaml.parse(parts[1])
    except yaml.YAMLError:
        return None
    return front if isinstance(front, Mapping) else None


def of_owner(owner: str) -> list[Entry]:
    """Return the policies of an account or organisation on the Hub."""
    hub = import_extra("huggingface_hub", "listing an owner's policies on the Hub", "hub")
    try:
        found = list(hub.HfApi(library_name="pronk").list_models(author=owner, filter="pronk", cardData=True))
    except Exception as error:  # network and service errors; the classes differ between versions of the package
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Failure(f"cannot list the policies of {owner}: {reason}") from error
    cards = {model.id: model.card_data.to_dict() if model.card_data else {} for model in found}
    use = "hf download {} --local-dir {}"
    return [
        entry_of(name, front, use.format(shlex.quote(name), shlex.quote("./zoo/" + name.rpartition("/")[2])))
        for name, front in cards.items()
        if front.get("library_name") == "pronk"
    ]


def entry_of(name: str, front: Mapping[str, Any], use: str) -> Entry:
    """Read a card's front matter. Anybody may have written it, so what is missing or of another form is left out."""
    tags = front.get("tags")
    environment = str(tags[-1]) if isinstance(tags, list) and tags else "-"
    score = None
    for model in listed(front.get("model-index")):
        for result in listed(model.get("results")):
            rewards = [one for one in listed(result.get("metrics")) if one.get("type") == "mean_reward"]
            score = next((str(one.get("value")) for one in rewards), score)
    episodes = front.get("episodes")
    return Entry(name, environment, score, episodes if isinstance(episodes, int) else None, use)


def listed(value: Any) -> list[Mapping[str, Any]]:
    return [part for part in value if isinstance(part, Mapping)] if isinstance(value, list) else []
