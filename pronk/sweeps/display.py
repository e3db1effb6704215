"""A sweep on the screen: a live table on a terminal, a line per event elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from pronk.plotting.numbers import interval_text
from pronk.runs.reading import return_text
from pronk.sinks.console import duration
from pronk.sweeps.report import Group as Result
from pronk.sweeps.running import ENDED, Record, time_left

COLOURS = {"running": "bold cyan", "solved": "bold green", "finished": "green", "waiting": "dim", "failed": "bold red"}
ORDER = ("running", "failed", "interrupted", "solved", "finished", "pruned", "waiting")
ROOM = 8  # lines of the screen that are not members


class LiveTable:
    """Redrawn about twice a second."""

    def __init__(self, title: str, at_a_time: int, expected: int, console: Console) -> None:
        """`expected`: how many members there will be."""
        self.title, self._at_a_time, self._expected, self._console = title, at_a_time, expected, console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> LiveTable:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._live.__exit__(*exception)

    def show(self, records: Sequence[Record]) -> None:
        """Redraw. If the screen is too small for all members, those that wait or are done are only counted."""
        room = max(3, self._console.height - ROOM)
        shown = sorted(records, key=lambda record: ORDER.index(record.state))[:room]
        table = Table(Column("member", overflow="fold"), "settings", box=None, header_style="dim", padding=(0, 2, 0, 0))
        for name in ("seed", "state", "return", "steps"):
            table.add_column(name, justify="left" if name == "state" else "right")
        for record in records:
            if record in shown:
                table.add_row(*cells(record))
        self._live.update(Group(Text(f" {self.title}", "bold"), table, Text(self._footer(records))), refresh=True)

    def changed(self, record: Record | None, records: Sequence[Record]) -> None:
        """Redraw."""
        self.show(records)

    def _footer(self, records: Sequence[Record]) -> str:
        return " " + progress(records, self._at_a_time, self._expected)


class EventLines:
    """A line when a member starts or ends, for logs and pipes."""

    def __init__(self, title: str, at_a_time: int, expected: int, console: Console) -> None:
        self.title, self._at_a_time, self._expected, self._console = title, at_a_time, expected, console

    def __enter__(self) -> EventLines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, records: Sequence[Record]) -> None: ...

    def changed(self, record: Record | None, records: Sequence[Record]) -> None:
        """Print what became of a member."""
        if record is None:
            return
        words = [f"{self.title}: {record.member.name}: {'started' if record.state == 'running' else record.state}"]
        if record.state == "failed" and record.cause:
            words.append(first_line(record.cause))
        elif record.state in ENDED:
            words.append(f"return {return_text(record.value)}, {record.steps:,} steps")
        line = ", ".join([*words, progress(records, self._at_a_time, self._expected)])
        self._console.print(Text(line), soft_wrap=True)


class Nothing:
    """Shows nothing."""

    title = ""

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, records: Sequence[Record]) -> None: ...

    def changed(self, record: Record | None, records: Sequence[Record]) -> None: ...


def cells(record: Record) -> list[str]:
    """Format a row."""
    member = record.member
    state = f"[{COLOURS.get(record.state, 'yellow')}]{record.state}[/]"
    steps = f"{record.steps:,}" if record.steps else "-"
    return [escape(member.name), escape(member.label), str(member.seed), state, return_text(record.value), steps]


def progress(records: Sequence[Record], at_a_time: int, expected: int) -> str:
    """`3 of 8 done, 2 running, 1 failed, 0:45 left`."""
    count = Counter(record.state for record in records)
    done = sum(count[state] for state in ("finished", "solved", "pruned"))
    parts = [f"{done} of {max(expected, len(records))} done"]
    parts += [f"{count[state]} {state}" for state in ("running", "failed", "interrupted") if count[state]]
    left = time_left(records, at_a_time, expected)
    if left:
        parts.append(f"{duration(left)} left")
    return ", ".join(parts)


def result_table(groups: Sequence[Result], metric: str) -> Table:
    """Return the groups over seeds, the best first."""
    table = Table(Column("settings", overflow="fold"), box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("runs", f"{metric.replace('_', ' ')}: IQM [95%]", "mean", "lowest to highest"):
        table.add_column(name, justify="right")
    for group in groups:
        interval = " to ".join(map(return_text, group.interval)) if group.interval else "-"
        complete = f"{len(group.values)}" if len(group.values) == group.runs else f"{len(group.values)} of {group.runs}"
        middle = interval_text(group.iqm) if group.iqm else "-"
        table.add_row(*map(Text, (group.label or "(the base)", complete, middle, return_text(group.mean), interval)))
    return table


def first_line(text: str) -> str:
    """Return the most informative line of a cause: the last one of a traceback, else the first."""
    lines = text.strip().splitlines() or ["unknown cause"]
    return lines[-1] if "Traceback" in text else lines[0]
