"""A folder of one machine kept equal on another, one way: appended files by their new end, others as a whole."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pronk.cluster.base import Event

CHUNK = 1 << 19
UNFINISHED = ".tmp"  # how the names of files end that are still being written
PARTS = ".arriving"
APPENDED = re.compile(r"\.(jsonl|log)$|\btfevents\b")


class Outgoing:
    """The side that has the folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sent: dict[str, tuple[int, int, int]] = {}  # path -> inode, size, time of change

    def changes(self) -> Iterator[Event]:
        """Since the last look. A file that changes meanwhile is looked at again next time."""
        seen = set()
        for path in sorted(self._root.rglob("*")):
            if path.name.endswith(UNFINISHED) or path.is_symlink():
                continue
            name = path.relative_to(self._root).as_posix()
            try:
                if not path.is_file():
                    continue
                seen.add(name)
                with open(path, "rb") as file:
                    yield from self._news(name, file.fileno())
            except FileNotFoundError:
                seen.discard(name)
            except OSError:  # not ours to read
                continue
        for name in self._sent.keys() - seen:
            del self._sent[name]
            yield {"gone": name}

    def _news(self, name: str, descriptor: int) -> Iterator[Event]:
        status = os.fstat(descriptor)
        inode, size, changed = self._sent.get(name, (0, 0, 0))
        if (status.st_ino, status.st_size, status.st_mtime_ns) == (inode, size, changed):
            return
        appended = inode == status.st_ino and size < status.st_size and APPENDED.search(name) is not None
        position = size if appended else 0
        self._sent[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        while True:
            data = os.pread(descriptor, min(CHUNK, status.st_size - position), position)
            text = base64.b64encode(data).decode()
            last = not data or position + len(data) >= status.st_size
            yield {"file": name, "at": position, "data": text, "appended": appended, "last": last}
            position += len(data)
            if last:
                return


class Incoming:
    """The side that wants to have it too."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def take(self, event: Event) -> None:
        """A `file` or `gone` event."""
        path = self._path(event.get("file") or event["gone"])
        if "gone" in event:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path if event["appended"] else path.with_name(path.name + PARTS)
        with open(target, "r+b" if event["at"] and target.exists() else "wb") as file:
            file.seek(event["at"])
            file.truncate()
            file.write(base64.b64decode(event["data"]))
        if event["last"] and not event["appended"]:
            os.replace(target, path)

    def _path(self, name: str) -> Path:
        """Inside the folder, whatever the other side says."""
        parts = PurePosixPath(name).parts
        if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
            raise ValueError(f"{name!r} does not lie in the run directory")
        return self._root.joinpath(*parts)
