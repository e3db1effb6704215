"""Files that are either complete or not there: written under another name, synced to disk, then renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write; it replaces `path` when the block is left without an error, and is removed otherwise."""
    aside = aside_of(path)
    try:
        with open(aside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_directory(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes) -> None:
    with atomic_file(path) as file:
        file.write(content)


def replace_with_copy(source: Path, target: Path) -> None:
    """Make `target` a second name (a copy, where the file system has no hard links) of `source`, atomically."""
    aside = aside_of(target)
    aside.unlink(missing_ok=True)
    try:
        os.link(source, aside)
    except OSError:
        shutil.copyfile(source, aside)
    os.replace(aside, target)


def aside_of(path: Path) -> Path:
    """The name to write under first. With the process's id, so that two processes never write the same file."""
    return path.with_suffix(f".{os.getpid()}.tmp")


def sync_directory(path: Path) -> None:
    """Make a rename survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
