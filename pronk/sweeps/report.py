"""The results of a sweep: groups over seeds, sweep.json, a plot."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pronk.metrics.statistics import Interval, bootstrap, iqm
from pronk.runs.atomic import write_atomically
from pronk.sweeps.expand import Settings, as_text
from pronk.sweeps.running import COMPLETE, Record, as_json
from pronk.types import UserError

FILE = "sweep.json"


@dataclass(frozen=True)
class Group:
    """Members that differ only by seed."""

    label: str
    settings: Settings
    runs: int
    values: list[float]
    """Of the metric, of the members that are complete and have one."""

    @property
    def mean(self) -> float | None:
        return sum(self.values) / len(self.values) if self.values else None

    @property
    def iqm(self) -> Interval | None:
        """The interquartile mean with its 95% bootstrap interval; of one value, the value alone."""
        return bootstrap(iqm, np.array(self.values)[:, None]) if self.values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The lowest and the highest value."""
        return (min(self.values), max(self.values)) if self.values else None


def groups_of(records: Sequence[Record]) -> list[Group]:
    """Return the groups, the best mean first; those without a value last."""
    together: dict[str, list[Record]] = {}
    for record in records:
        key = as_text(record.member.settings) if record.member.trial is None else f"trial {record.member.trial}"
        together.setdefault(key, []).append(record)
    found = [
        Group(
            name_of(members[0]),
            members[0].member.settings,
            len(members),
            [one.value for one in members if one.state in COMPLETE and one.value is not None],
        )
        for members in together.values()
    ]
    return sorted(found, key=lambda group: (group.mean is None, -(group.mean or 0.0)))


def name_of(record: Record) -> str:
    member = record.member
    return member.label if member.trial is None else f"trial {member.trial}: {member.label}"


def write_report(folder: Path, records: Sequence[Record], **facts: Any) -> None:
    """Write sweep.json: facts on the sweep, every member, every group."""
    groups = [
        {
            "label": group.label,
            "settings": group.settings,
            "runs": group.runs,
            "values": group.values,
            "mean": group.mean,
            "interval": group.interval,
            "iqm": [float(end) for end in group.iqm] if group.iqm else None,
        }
        for group in groups_of(records)
    ]
    content = {**facts, "members": [as_json(record, folder) for record in records], "groups": groups}
    text = json.dumps(content, indent=2, default=str)
    with contextlib.suppress(OSError):  # a full disk must not end the members
        write_atomically(folder / FILE, (text + "\n").encode())


def announce_missing_plot(say: Callable[[str], None]) -> None:
    """Report, before any work is done, that no curves will be drawn if matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        say("there will be no plot.png, which needs the package matplotlib: pip install 'pronk[plot]'")


def draw(folder: Path) -> Path | None:
    """Draw the learning curves of all members into plot.png; None: there are none yet."""
    from pronk.plotting import plot

    with contextlib.suppress(UserError):
        return plot(folder, folder / "plot.png").path
    return None
