"""Reads metrics.jsonl and eval.jsonl, however long they are.

A short file is read completely. Of a long one, the first complete line after each of many evenly spaced positions is
read: ten million lines open as fast as a thousand. `follow` reads what was appended since the last time. Lines that are
torn or not JSON objects are skipped. `sinks/jsonl.py` writes the files.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

T = TypeVar("T")
BYTES_PER_LINE = 1024  # a file with up to so many bytes per requested line is read completely
GLANCE = 4 * 1024  # bytes per read, enough for a line of metrics, which has about 450
LONGEST_LINE = 256 * 1024  # bytes; longer lines: not a metrics file


class Stretch(NamedTuple):
    """Some lines of a file, in order."""

    lines: list[dict[str, Any]]
    end: int
    """Where the last complete line ends: where to continue."""
    file: int
    """Inode: changes when the file is replaced, as a resumed run does with its metrics."""
    sampled: bool
    """Whether lines were left out."""


NOTHING = Stretch([], 0, 0, False)


def read(path: Path, points: int, start: int = 0, complete_below: int = 0, stop: int | None = None) -> Stretch:
    """Return about `points` lines between `start` and the end of the file, the first and the last among them.

    If there are at most `complete_below` bytes, all lines are returned. `stop`, where a line ends, replaces the end of
    the file.
    """
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            end = last_line_end(file, start, status.st_size if stop is None else min(stop, status.st_size))
            if end - start > max(complete_below, BYTES_PER_LINE * points):
                return Stretch(glance(file, points, start, end), end, status.st_ino, sampled=True)
            file.seek(start)
            lines = parse_all(read_exactly(file, end - start))
            most = len(lines) if end - start <= complete_below else points
            return Stretch(thinned(lines, most), end, status.st_ino, sampled=len(lines) > most)
    except OSError:
        return NOTHING


def read_all(path: Path) -> list[dict[str, Any]]:
    """Return every line; for files that are never long."""
    try:
        with open_regular(path) as file:
            return parse_all(complete_lines(file.read(), from_start=True))
    except OSError:
        return []


def follow(path: Path, points: int, file: int, after: int) -> tuple[Stretch, bool]:
    """Return what was appended since `after`, and True; or the complete file and False, if it was rewritten."""
    try:
        status = path.stat()
    except OSError:
        return NOTHING, file == NOTHING.file
    same = status.st_ino == file and status.st_size >= after
    return read(path, points, after if same else 0), same


def read_between(path: Path, points: int, key: str, low: float, high: float) -> Stretch:
    """Return about `points` of the lines whose `key`, which grows from line to line, is between two values."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start, stop = (first_from(file, size, key, value) for value in (low, math.nextafter(high, math.inf)))
    except OSError:
        return NOTHING
    return read(path, points, start, stop=max(start, stop))


def first_from(file: BinaryIO, size: int, key: str, value: float) -> int:
    """Return where the first line begins whose `key` is at least `value`; the size, if none is. Bisects."""
    low, high = 0, size  # lines that begin before `low` are below the value, those from `high` on are not
    while low < high:
        at, text = line_after(file, middle := (low + high) // 2)
        found = (parse(text) or {}).get(key)
        if at >= high or (isinstance(found, int | float) and found >= value):
            high = middle
        else:  # below, or not readable
            low = max(middle, at) + len(text) + 1
    return line_after(file, low)[0] if low < size else size


def share(path: Path, part: float) -> int:
    """Return where the last `part` (0 to 1) of a file begins, at the start of a line."""
    try:
        with open_regular(path) as file:
            return line_after(file, int(os.fstat(file.fileno()).st_size * (1 - part)))[0]
    except OSError:
        return 0


def last(path: Path) -> dict[str, Any] | None:
    """Return the last line that can be read, or None."""
    try:
        with open_regular(path) as file:
            return last_between(file, 0, os.fstat(file.fileno()).st_size)
    except OSError:
        return None


def glance(file: BinaryIO, points: int, start: int, end: int) -> list[dict[str, Any]]:
    """Return the first complete line after each of evenly spaced positions, and the last line."""
    lines, seen = [], -1
    for number in range(points):
        position = start + (end - start) * number // points
        if position <= seen:
            continue
        at, text = line_after(file, position)
        if seen < at < end:  # else this line was read before: it is longer than the distance between two positions
            seen = at
            if (line := parse(text)) is not None:
                lines.append(line)
    tail = last_between(file, start, end)
    if tail is not None and (not lines or tail != lines[-1]):
        lines.append(tail)
    return lines


def last_between(file: BinaryIO, start: int, end: int) -> dict[str, Any] | None:
    """Return the last readable line between two positions; `start` is where a line begins."""
    length = GLANCE
    while True:
        begin = max(start, end - length)
        file.seek(begin)
        text = complete_lines(read_exactly(file, end - begin), begin == start)
        found = next((line for part in reversed(text.split(b"\n")) if (line := parse(part)) is not None), None)
        if found is not None or begin == start or length > LONGEST_LINE:
            return found
        length *= 4


def line_after(file: BinaryIO, position: int) -> tuple[int, bytes]:
    """Return position and text of the first line that begins at or after `position`. Usually one small read."""
    before = max(0, position - 1)  # the line before may end just there
    file.seek(before)
    text, found = b"", 0
    while len(text) < LONGEST_LINE and (chunk := file.read(max(GLANCE, len(text)))):
        text += chunk
        found = 0 if position == 0 else text.find(b"\n") + 1
        if (found or position == 0) and (end := text.find(b"\n", found)) >= 0:
            return before + found, text[found:end]
    return before + len(text), b""


def last_line_end(file: BinaryIO, start: int, size: int) -> int:
    """Return where the last complete line ends; what follows is still being written, or torn."""
    end = size
    while end > start and size - end < LONGEST_LINE:
        begin = max(start, end - GLANCE)
        file.seek(begin)
        found = read_exactly(file, end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return start


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read. Raises OSError for a pipe or a device, which could make the reader wait for ever."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, f"{path} is not a regular file")
    return file


def read_exactly(file: BinaryIO, count: int) -> bytes:
    """Read `count` bytes; an unbuffered file may return less at a time."""
    parts = []
    while count > 0 and (part := file.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def complete_lines(text: bytes, from_start: bool) -> bytes:
    """Drop an incomplete line at the end, and, unless `from_start`, the one at the beginning."""
    text = text[: text.rfind(b"\n") + 1]
    return text if from_start else text.partition(b"\n")[2]


def parse_all(text: bytes) -> list[dict[str, Any]]:
    """Return the objects in lines of JSON."""
    return [line for part in text.split(b"\n") if part and (line := parse(part)) is not None]


def parse(text: bytes) -> dict[str, Any] | None:
    """Return one object, or None."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def thinned(items: list[T], points: int) -> list[T]:
    """At most `points` of them, evenly spaced, the first and the last among them."""
    if len(items) <= points:
        return items
    step = (len(items) - 1) / max(1, points - 1)
    return [items[round(number * step)] for number in range(points)]


def as_json(line: dict[str, Any]) -> str:
    """Format a line of the file."""
    return json.dumps({name: plain(value) for name, value in line.items()}) + "\n"


def plain(value: Any) -> Any:
    """Replace NaN and infinity by None: JSON has neither."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
