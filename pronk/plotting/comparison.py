"""Groups runs for comparison: runs whose settings differ only by seed are one group.

A group is named after the settings in which the groups differ, not after its directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pronk.config.errors import nearest
from pronk.runs.reading import Run
from pronk.types import UserError

RECORDED = ("run.video", "run.clip_every_steps", "run.profile_seconds")  # change nothing that is learnt
NOT_COMPARED = ("run.seed", "run.pause_steps", "description", *RECORDED)
ENVIRONMENT = ("env.id", "env.game", "env.kwargs", "env.tasks")  # what is played; these and the keys below them
MOST_KEYS = 3  # in a label
MISSING = "(none)"
MOST_SHORTENED = 10**15  # a setting may be an integer of any size, beyond all floating-point numbers


@dataclass(frozen=True)
class Group:
    """Runs that differ only by seed."""

    runs: tuple[Run, ...]
    environment: str
    label: str
    """The settings in which it differs from other groups of its environment; empty if it is the only one."""
    hidden: int = 0
    """How many differing settings the label leaves out."""

    @property
    def seeds(self) -> int:
        """How many different seeds its runs have; each run without a seed counts as one more."""
        seeds = [run.settings.get("run.seed") for run in self.runs]
        return len({seed for seed in seeds if seed is not None}) + seeds.count(None)


def count_text(groups: Sequence[Group]) -> str:
    """Return `3 seeds`; if some runs have the same seed also the number of runs: `3 to 5 runs, 3 seeds`."""

    def counted(counts: list[int], noun: str) -> str:
        low, high = min(counts), max(counts)
        return f"{low} to {high} {noun}s" if low < high else f"{low} {noun}{'s' if low > 1 else ''}"

    runs, seeds = [len(group.runs) for group in groups], [group.seeds for group in groups]
    text = counted(seeds, "seed")
    return text if runs == seeds else f"{counted(runs, 'run')}, {text}"


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """The groups, in the order of their first runs."""
    together: dict[str, list[Run]] = {}
    for run in runs:
        together.setdefault(repr(sorted(compared(run).items(), key=str)), []).append(run)
    groups = list(together.values())
    environments = distinct_environments([group[0] for group in groups])
    differing = differing_keys(groups, environments)
    chosen = distinguishing(groups, environments, differing)
    return [
        Group(tuple(group), environment, label_of(group[0], chosen, differing), len(differing) - len(chosen))
        for group, environment in zip(groups, environments, strict=True)
    ]


def group_by(runs: Sequence[Run], keys: Sequence[str]) -> list[Group]:
    """Groups by the values of these settings alone, whatever else differs; in the order of their first runs."""
    known = list(dict.fromkeys(key for run in runs for key in run.settings))
    for key in keys:
        if key not in known:
            raise UserError(f"no setting {key!r} in these runs{nearest(key, known)}")
    together: dict[tuple[str, str], list[Run]] = {}
    for run, environment in zip(runs, distinct_environments(runs, apart_from=keys), strict=True):
        together.setdefault((environment, label_of(run, list(keys), list(keys))), []).append(run)
    return [Group(tuple(some), environment, label) for (environment, label), some in together.items()]


def compared(run: Run) -> dict[str, Any]:
    """Return the settings that make a run another experiment."""
    return {key: value for key, value in run.settings.items() if key not in NOT_COMPARED}


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """`section.key` -> its value in each run, for those that are not the same in all."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    table = {key: [run.settings.get(key, MISSING) for run in runs] for key in keys}
    return {key: values for key, values in table.items() if any(value != values[0] for value in values)}


def distinct_environments(runs: Sequence[Run], apart_from: Sequence[str] = ()) -> list[str]:
    """Return a name for what each run plays; with details where the names would be equal."""
    keys = {run: {k: v for k, v in run.settings.items() if is_environment(k) and k not in apart_from} for run in runs}
    names: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        kinds = names.setdefault(environment_of(run), [])
        if keys[run] not in kinds:
            kinds.append(keys[run])
    answer = []
    for run in runs:
        name = environment_of(run)
        different = {k: v for k, v in keys[run].items() if any(kind.get(k, MISSING) != v for kind in names[name])}
        details = " ".join(f"{key.rpartition('.')[2]}={shown(value)}" for key, value in different.items())
        answer.append(f"{name} {details}".strip())
    return answer


def environment_of(run: Run) -> str:
    """Its game, its environment's id, or its tasks."""
    return run.environment or str(run.settings.get("env.id") or run.name)


def is_environment(key: str) -> bool:
    """Whether a key says what is played, not how."""
    return any(key == one or key.startswith(f"{one}.") for one in ENVIRONMENT)


def differing_keys(groups: Sequence[Sequence[Run]], environments: Sequence[str]) -> list[str]:
    """Return the keys that differ between groups of the same environment."""
    keys: dict[str, None] = {}
    for environment in dict.fromkeys(environments):
        rivals = [group[0] for group, played in zip(groups, environments, strict=True) if played == environment]
        keys |= dict.fromkeys(differences(rivals))
    return [key for key in keys if key not in NOT_COMPARED and not is_environment(key)]


def distinguishing(groups: Sequence[Sequence[Run]], environments: Sequence[str], keys: list[str]) -> list[str]:
    """Return all differing keys, if they are few; else as few as needed to distinguish the groups."""
    if len(keys) <= MOST_KEYS:
        return keys

    def apart(chosen: Sequence[str]) -> int:
        labels = (
            (environment, *(str(group[0].settings.get(key, MISSING)) for key in chosen))
            for group, environment in zip(groups, environments, strict=True)
        )
        return len(set(labels))

    chosen: list[str] = []
    while apart(chosen) < apart(keys):
        chosen.append(max((key for key in keys if key not in chosen), key=lambda key: apart([*chosen, key])))
    return chosen


def label_of(run: Run, chosen: list[str], differing: list[str]) -> str:
    """`learning_rate=0.001, core=lstm`; with the section where the last word alone is not clear."""
    words = [key.rpartition(".")[2] for key in differing]
    parts = []
    for key in chosen:
        word = key.rpartition(".")[2]
        clear = words.count(word) == 1 and word not in ("name", "count", "threads", "id", "enabled")
        parts.append(f"{word if clear else key}={shown(run.settings.get(key, MISSING))}")
    return ", ".join(parts)


def shown(value: Any) -> str:
    """A setting as it is written in YAML, large numbers in short."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and 100_000 <= abs(value) <= MOST_SHORTENED and value % 1_000 == 0:
        return f"{value / 1e6:g}M" if value >= 1_000_000 else f"{value / 1e3:g}k"
    return f"{value:g}" if isinstance(value, float) else str(value)
