"""A zip archive in which every damaged byte is noticed: the digest of all its bytes is its comment.

The checksums that a zip archive has anyway cover its members, but not its directory, where one wrong byte can make a
member look empty. torch looks at none of them.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import BinaryIO

DIGEST = b"sha256:"  # begins the comment
NO_COMMENT = b"\0\0"  # how an archive ends that has none: the comment's length
CHUNK = 1 << 20


class SealedFile:
    """What `torch.save` writes to, one byte after the other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Add bytes of the archive."""
        self._hash.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Do nothing: whoever opened the file does this."""

    def seal(self) -> None:
        """Add the comment. The archive must be complete."""
        comment = DIGEST + self._hash.hexdigest().encode()
        self._file.seek(-len(NO_COMMENT), os.SEEK_END)
        self._file.write(len(comment).to_bytes(2, "little") + comment)


def check_archive(path: Path) -> None:
    """Raise ValueError if an archive is damaged, or zipfile.BadZipFile. One without a digest has at least checksums."""
    with zipfile.ZipFile(path) as archive:
        comment = archive.comment
        if not comment.startswith(DIGEST):
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {damaged} is wrong: the file is damaged")
            return
    found = hashlib.sha256()
    with open(path, "rb") as file:
        left = os.fstat(file.fileno()).st_size - len(comment) - len(NO_COMMENT)
        while left > 0 and (chunk := file.read(min(left, CHUNK))):
            found.update(chunk)
            left -= len(chunk)
    found.update(NO_COMMENT)
    if DIGEST + found.hexdigest().encode() != comment:
        raise ValueError("its digest is wrong: the file is damaged")
