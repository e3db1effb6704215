"""tags.json of a run directory: the user's tags and note.

The dashboard is the only writer. Training never reads or writes the file, so that both may change the directory at
once. It stays when the run is resumed.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, NamedTuple

from pronk.runs.atomic import write_atomically
from pronk.types import UserError

TAGS_FILE = "tags.json"
MOST_TAGS = 20
LONGEST_TAG = 40  # characters
LONGEST_NOTE = 4000

writing = threading.Lock()  # two pages may save at once, and the name of the temporary file is the same for both


class Tags(NamedTuple):
    """What a user wrote about a run."""

    tags: tuple[str, ...] = ()
    note: str = ""


def tags_of(content: dict[str, Any]) -> Tags:
    """Return what a tags.json holds; what is not valid is left out."""
    found, note = content.get("tags"), content.get("note")
    tags = [tag.strip() for tag in found if isinstance(tag, str)] if isinstance(found, list) else []
    kept = [tag for tag in dict.fromkeys(tags) if 0 < len(tag) <= LONGEST_TAG and tag.isprintable()]
    return Tags(tuple(kept[:MOST_TAGS]), note[:LONGEST_NOTE] if isinstance(note, str) else "")


def write_tags(run: Path, content: Any) -> Tags:
    """Replace the tags and the note of a run. Raises UserError where they are not valid."""
    if not isinstance(content, dict) or not content.keys() <= {"tags", "note"}:
        raise UserError('tags must be given as {"tags": ["baseline"], "note": "text"}')
    valid = tags_of(content)
    given = content.get("tags", [])
    stripped = dict.fromkeys(tag.strip() for tag in given if isinstance(tag, str)) if isinstance(given, list) else {}
    if not isinstance(given, list) or list(stripped) != list(valid.tags):
        raise UserError(f"at most {MOST_TAGS} tags of 1 to {LONGEST_TAG} printable characters can be kept")
    if content.get("note", "") != valid.note:
        raise UserError(f"a note must be a text of at most {LONGEST_NOTE} characters")
    try:
        with writing:
            write_atomically(run / TAGS_FILE, (json.dumps(valid._asdict(), indent=2) + "\n").encode())
    except OSError as error:
        raise UserError(f"cannot write {run / TAGS_FILE}: {error.strerror}") from None
    return valid
