"""The directory of many runs that one file describes, a sweep or a population: made, found again, and continued.

DIRECTORY/
    KIND.yaml       the file with all settings
    KIND.json       members, states, results
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from pronk.config import plain_yaml, read_yaml
from pronk.runs.atomic import write_atomically
from pronk.runs.directory import claim
from pronk.runs.reading import RUNS, is_run, read_json
from pronk.types import UserError


class Plan(Protocol):
    """What such a file holds."""

    @property
    def name(self) -> str:
        """Of the file, without its ending."""
        ...

    @property
    def base(self) -> str | None:
        """The preset, id or file below all settings."""
        ...

    @property
    def fixed(self) -> Mapping[str, Any]:
        """Settings of all members, on top of the base."""
        ...

    @property
    def options(self) -> BaseModel:
        """Of the sweep or population itself."""
        ...


AnyPlan = TypeVar("AnyPlan", bound=Plan)


@dataclass(frozen=True)
class PlanFolder(Generic[AnyPlan]):
    """How plans of one kind are kept."""

    kind: str
    """`sweep` or `population`: the section of the options, and the name of both files."""
    parse: Callable[[dict[str, Any], str, str], AnyPlan]
    """From the content of a file, the plan's name, and what messages call the file."""
    comparable: Callable[[AnyPlan], dict[str, Any]]
    """Return what may not change when a plan is continued."""

    def open(self, plan: AnyPlan, folder: Path | None, resume: bool) -> Path:
        """Make the directory of a new plan, or check that the one to continue is the same. Writes the plan into it."""
        if resume:
            assert folder is not None
            self._refuse_another(plan, self.stored(folder))
        else:
            folder = claim(folder, plan.name)
        write_atomically(folder / f"{self.kind}.yaml", self.as_yaml(plan).encode())
        return folder

    def stored(self, folder: Path) -> AnyPlan:
        """Read the plan in a directory."""
        copy = folder / f"{self.kind}.yaml"
        if not copy.is_file():
            why = f"is a run, not a {self.kind}" if is_run(folder) else f"is not a {self.kind}: it has no {copy.name}"
            raise UserError(f"{folder} {why}")
        name = str(read_json(folder / f"{self.kind}.json").get("name") or folder.name)
        return self.parse(read_yaml(copy), name, str(copy))

    def newest(self, name: str) -> Path:
        """Return the newest directory under runs/ that was made from a file of this name."""
        reports = RUNS.glob(f"*/{self.kind}.json")
        found = [report.parent for report in reports if read_json(report).get("name") == name]
        if not found:
            raise UserError(f"no {self.kind} of {name} under {RUNS}/ yet; start it first, or name its directory")
        return max(found, key=lambda folder: (folder / f"{self.kind}.yaml").stat().st_mtime)

    def as_yaml(self, plan: AnyPlan) -> str:
        """Return the plan as a file."""
        options = plan.options.model_dump(exclude_defaults=True)
        base = {} if plan.base is None else {"base": plan.base}
        return plain_yaml.dump({**base, **plan.fixed, self.kind: options})

    def _refuse_another(self, plan: AnyPlan, before: AnyPlan) -> None:
        now, then = self.comparable(plan), self.comparable(before)
        for key in sorted({**now, **then}):
            if now.get(key) != then.get(key):
                raise UserError(
                    f"{plan.name}: {key} is {now.get(key)!r} now and was {then.get(key)!r} when the {self.kind} was "
                    "started; start a new one"
                )


def without_cluster(fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those of where members run, which may change when a plan is continued."""
    return {key: value for key, value in fixed.items() if key.partition(".")[0] != "cluster"}
