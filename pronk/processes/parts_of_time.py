"""The parts into which a profile divides the time of a learner and of an actor, and their table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

OTHER = "other"


class Parts(NamedTuple):
    """How the time of one kind of process is divided."""

    meanings: dict[str, str]
    """Part -> what it is, for the table. Rows come in this order; those that did not occur are left out."""
    work: tuple[str, ...]
    """What the process is there for. All else is overhead, or waiting."""
    waiting: str


LEARNER = Parts(
    {
        "forward": "network and loss",
        "backward": "",
        "optimiser": "clipping, weights and statistics",
        "publish": "parameters to the actors",
        "batching": "unrolls to batches",
        "metrics": "counting, files and screen",
        "waiting": "for unrolls",
        "replay": "drawing and storing columns",
        "other learners": "their gradients",
        "checkpoints": "",
    },
    work=("forward", "backward", "optimiser"),
    waiting="waiting",
)
ACTOR = Parts(
    {
        "environment": "",
        "inference": "choosing actions",
        "filling the unroll": "copying, and looking for NaN",
        "loading parameters": "",
        "waiting for a slot": "",
    },
    work=("environment", "inference"),
    waiting="waiting for a slot",
)


@dataclass
class TimeSpent:
    """Of one part, without the parts inside it."""

    calls: int = 0
    seconds: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one call."""
        self.calls += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)


def table_of(parts: Parts, seconds: float, spent: dict[str, TimeSpent]) -> str:
    """Return the table of `seconds` in all: a row for each part, and what is not work."""
    seconds = max(seconds, 1e-9)
    lines = [f"{'share':>6}  {'calls':>8}  {'mean ms':>9}  {'max ms':>9}  part"]
    for part, meaning in parts.meanings.items():
        if one := spent.get(part):
            times = f"{1e3 * one.seconds / one.calls:9.3f}  {1e3 * one.longest:9.3f}"
            what = f"{part}: {meaning}" if meaning else part
            lines.append(f"{one.seconds / seconds:6.1%}  {one.calls:8,}  {times}  {what}")
    named = sum(one.seconds for one in spent.values())
    lines.append(f"{1 - named / seconds:6.1%}  {'':8}  {'':9}  {'':9}  {OTHER}")
    worked = sum(spent[part].seconds for part in parts.work if part in spent)
    waited = spent[parts.waiting].seconds if parts.waiting in spent else 0.0
    busy = max(seconds - waited, 1e-9)
    overhead = max(0.0, busy - worked)
    work = " and ".join([", ".join(parts.work[:-1]), parts.work[-1]])
    lines.append(
        f"outside {work}: {1 - worked / seconds:.1%} of {seconds:.1f} s, {overhead / busy:.1%} without waiting"
    )
    return "\n".join(lines) + "\n"
