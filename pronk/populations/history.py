"""The history of a population: population.json, which is complete or absent at any time.

    {"name": ..., "state": "running", "best": {"member": "member-02", ...},
     "rounds": [{"until": 100000, "ready": true, "members": [
        {"name": "member-00", "parent": null, "settings": {...}, "state": "finished", "value": 21.5, ...}, ...]}, ...]}

A round is written before its members start. Its `parent`s are the lineage, its `settings` the schedule.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pronk.populations.rules import Settings
from pronk.runs.atomic import write_atomically
from pronk.runs.reading import read_json
from pronk.types import UserError

FILE = "population.json"
OVER = ("finished", "solved", "failed")


@dataclass
class Turn:
    """A member in one round."""

    name: str
    settings: Settings
    parent: str | None = None
    """The member whose weights and settings it took over before the round."""
    state: str = "waiting"
    value: float | None = None
    """Of the metric, at the end."""
    env_steps: int = 0
    wall_seconds: float = 0.0
    """Of training, over all rounds."""
    lasted: float | None = None
    """Seconds that its process ran in this round, start-up included."""
    cause: str | None = None
    """Why it failed."""


@dataclass
class Round:
    """Every member trains until it has made so many environment steps."""

    until: int
    members: list[Turn]
    ready: bool = False
    """Whether all members have the weights that they begin with."""

    @property
    def is_over(self) -> bool:
        return all(turn.state in OVER for turn in self.members)

    @property
    def best(self) -> Turn | None:
        """The member with the highest value; None if no episode has ended."""
        valued = [turn for turn in self.members if turn.value is not None and turn.state != "failed"]
        return max(valued, key=lambda turn: turn.value or 0.0, default=None)


@dataclass
class History:
    """All rounds of a population, in its directory."""

    folder: Path
    facts: dict[str, Any]
    """Name, metric and so on."""
    rounds: list[Round] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> History:
        """Read an earlier session's. Raises `UserError` if there is none."""
        content = read_json(folder / FILE)
        try:
            rounds = [
                Round(one["until"], [Turn(**turn) for turn in one["members"]], one["ready"])
                for one in content.pop("rounds")
            ]
        except (KeyError, TypeError):
            raise UserError(f"{folder / FILE} is not a population of this version of Pronk") from None
        return cls(folder, content, rounds)

    def write(self, state: str) -> None:
        """Write population.json. It is needed to continue, unlike a report, so a full disk is an error."""
        content = {
            **self.facts,
            "state": state,
            "best": self.result(),
            "startup_share": self.startup_share(),
            "rounds": [asdict(one) for one in self.rounds],
        }
        write_atomically(self.folder / FILE, (json.dumps(content, indent=1, default=str) + "\n").encode())

    def result(self) -> dict[str, Any] | None:
        """Return the best member of the last round that has one."""
        for one in reversed(self.rounds):
            if one.is_over and one.best is not None:
                best = one.best
                return {
                    "member": best.name,
                    "value": best.value,
                    "env_steps": best.env_steps,
                    "settings": best.settings,
                }
        return None

    def values(self) -> list[float]:
        """Return the values of all members after all rounds."""
        return [turn.value for one in self.rounds for turn in one.members if turn.value is not None]

    def startup_share(self) -> float | None:
        """Return the share of the processes' time that was not training; None: not known yet."""
        lasted = trained = 0.0
        for number, one in enumerate(self.rounds):
            before = {turn.name: turn.wall_seconds for turn in self.rounds[number - 1].members} if number else {}
            for turn in one.members:
                if turn.lasted is not None and turn.state in ("finished", "solved"):
                    lasted += turn.lasted
                    trained += min(turn.lasted, turn.wall_seconds - before.get(turn.name, 0.0))
        return round(1 - trained / lasted, 4) if lasted else None
