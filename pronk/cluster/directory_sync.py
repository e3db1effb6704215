"""One-way copy of a directory between machines. Of files that only grow, just the new end is sent."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pronk.processes.messages import FileChunk, FileRemoved, FilesPresent, Message

CHUNK = 1 << 19  # bytes
UNFINISHED = ".tmp"  # suffix of files that are still being written
PARTIAL = ".partial"  # suffix of files that are still being received
APPENDED = re.compile(r"\.(jsonl|log)$|\btfevents\b")
CHECKPOINTS = "checkpoints"


class DirectorySender:
    """Reports the changes of a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sent: dict[str, tuple[int, int, int]] = {}  # name -> inode, size, time of change
        self._listed = False

    def changes(self) -> Iterator[Message]:
        """Yield what changed since the last scan. A file that changes during the scan is sent again at the next."""
        seen: set[str] = set()
        for path in sorted(self._root.rglob("*")):
            if path.name.endswith(UNFINISHED) or path.is_symlink():
                continue
            name = path.relative_to(self._root).as_posix()
            try:
                if not path.is_file():
                    continue
                seen.add(name)
                with open(path, "rb") as file:
                    yield from self._chunks(name, file.fileno())
            except FileNotFoundError:  # removed since it was listed
                seen.discard(name)
            except OSError:  # not readable
                continue
        for name in self._sent.keys() - seen:
            del self._sent[name]
            yield FileRemoved(name)
        if not self._listed:  # files may have been removed while no sender ran
            self._listed = True
            yield FilesPresent(sorted(seen))

    def _chunks(self, name: str, descriptor: int) -> Iterator[Message]:
        status = os.fstat(descriptor)
        inode, size, changed = self._sent.get(name, (0, 0, 0))
        if (status.st_ino, status.st_size, status.st_mtime_ns) == (inode, size, changed):
            return
        appended = inode == status.st_ino and size < status.st_size and APPENDED.search(name) is not None
        offset = size if appended else 0
        self._sent[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        last = False
        while not last:
            data = os.pread(descriptor, min(CHUNK, status.st_size - offset), offset)
            last = not data or offset + len(data) >= status.st_size
            yield FileChunk(name, offset, base64.b64encode(data).decode(), appended, last)
            offset += len(data)


class DirectoryReceiver:
    """Applies the changes to a copy. Files that only the copy has are left alone, except old checkpoints."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def apply(self, message: FileChunk | FileRemoved | FilesPresent) -> None:
        """Raises ValueError for a path outside the directory, OSError if the copy cannot be written."""
        if isinstance(message, FileChunk):
            self._write(message)
        elif isinstance(message, FileRemoved):
            self._path(message.path).unlink(missing_ok=True)
        else:
            self._remove_old_checkpoints(set(message.paths))

    def _write(self, chunk: FileChunk) -> None:
        path = self._path(chunk.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path if chunk.appended else path.with_name(path.name + PARTIAL)
        with open(target, "r+b" if chunk.offset and target.exists() else "wb") as file:
            file.seek(chunk.offset)
            file.truncate()
            file.write(base64.b64decode(chunk.data))
        if chunk.last and not chunk.appended:
            os.replace(target, path)

    def _remove_old_checkpoints(self, present: set[str]) -> None:
        """Remove checkpoints that the sender no longer has. If it has none, its disk may be lost, so all are kept."""
        if any(name.startswith(f"{CHECKPOINTS}/") for name in present):
            for path in (self._root / CHECKPOINTS).glob("*"):
                if f"{CHECKPOINTS}/{path.name}" not in present and path.is_file():
                    path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        """Return the path inside the directory, whatever the other side sends."""
        parts = PurePosixPath(name).parts
        if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
            raise ValueError(f"{name!r} is not in the run directory")
        return self._root.joinpath(*parts)
