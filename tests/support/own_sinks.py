"""Sinks that a user might write, good and bad, named in configurations as `own_sinks:Name`."""

from __future__ import annotations

import threading
from typing import Any

from pronk.sinks.outside import Facts


class Notebook:
    """Keeps everything."""

    pages: list[Any] = []  # noqa: RUF012 - of all instances, for a test to read

    def __init__(self, facts: Facts) -> None:
        self.pages.append(facts)

    def __enter__(self) -> Notebook:
        return self

    def __exit__(self, *_: object) -> None:
        self.pages.append("closed")

    def write(self, line: dict[str, Any]) -> None:
        self.pages.append(line)


class Stuck(Notebook):
    """Never comes back from its first line, until it is freed."""

    freed = threading.Event()

    def write(self, line: dict[str, Any]) -> None:
        self.freed.wait()


class FailsToOpen(Notebook):
    def __enter__(self) -> Notebook:
        raise ConnectionError("no route to host\nand a long story")


class FailsToWrite(Notebook):
    def write(self, line: dict[str, Any]) -> None:
        raise ConnectionError("no route to host")


class FailsToClose(Notebook):
    def write(self, line: dict[str, Any]) -> None: ...

    def __exit__(self, *_: object) -> None:
        raise SystemExit("no route to host")
