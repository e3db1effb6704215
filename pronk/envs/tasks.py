"""Several tasks in one vector: environments of each task side by side, as columns of one `VectorEnv`.

    number in the run    0  1  2  3  4  5  6  7 ...
    task of three        0  1  2  0  1  2  0  1 ...       assigned by the number, over all actors

So every task has as many environments as any other, or one more, whatever the number of actors, and neighbouring
columns, which share a batch, play different tasks. Each task has a vector of its own kind; only here are they joined.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from pronk.config import EnvConfig
from pronk.config.errors import nearest
from pronk.envs.base import VectorEnv, make_vector, played_as
from pronk.envs.last_inputs import as_dict
from pronk.layout import Layout, describe
from pronk.types import (
    ActionSpec,
    Array,
    ArraySpec,
    EnvSpec,
    Step,
    Tree,
    UserError,
    assign,
    leaves,
    map_tree,
    step_specs,
)

TASK = "task"  # the entry of the observation with `env.task_observed`
FULL_ACTIONS = "Atari games have all 18 actions (env.atari.full_actions), since tasks share one set of weights"


def make_tasks(config: EnvConfig, count: int, timeout: float, first: int = 0, task: str | None = None) -> TaskVector:
    """Make environments of the configured tasks; see `envs.base.make_env` for the arguments."""
    settings, notes = settings_of(config)
    played = dealt_tasks(config, count, first, task)
    vectors: dict[int, VectorEnv] = {}
    try:
        for index in np.unique(played).tolist():
            with naming(config, index):
                vectors[index] = make_vector(settings[index], int(np.count_nonzero(played == index)), timeout)
                refuse_teams(vectors[index].spec)
        return TaskVector(vectors, played, config, notes)
    except BaseException:
        for vector in vectors.values():
            vector.close()
        raise


def dealt_tasks(config: EnvConfig, count: int, first: int, task: str | None = None) -> Array:
    """Return the task of each of `count` environments, [count] int32: all the named one, or each in turn.

    `first` is the number of the first environment in the run.
    """
    names = config.task_names
    if task is None:
        return ((first + np.arange(count)) % len(names)).astype(np.int32)
    if task not in names:
        raise UserError(f"no task {task!r}{nearest(task, names)}; there are {', '.join(names)}")
    return np.full(count, names.index(task), np.int32)


def settings_of(config: EnvConfig) -> tuple[list[EnvConfig], tuple[str, ...]]:
    """Return the settings that make each task, and lines for the user on what was changed.

    Atari games get all actions: those that each game uses are different ones.
    """
    settings, notes = [], []
    for index, task in enumerate(config.each_task):
        with naming(config, index):
            played = played_as(task)
        if played.id != task.id:
            from pronk.envs.ale_ids import describe_change

            notes.append(describe_change(task, played))
        if played.id == "atari" and not played.atari.full_actions:
            notes.append(FULL_ACTIONS)
            atari = played.atari.model_copy(update={"full_actions": True})
            played = played.model_copy(update={"atari": atari})
        settings.append(played)
    return settings, tuple(dict.fromkeys(notes))


@contextlib.contextmanager
def naming(config: EnvConfig, index: int) -> Iterator[None]:
    """Add the name of the task to every `UserError` that is raised in the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"env.tasks: {config.task_names[index]}: {error}") from None


def refuse_teams(spec: EnvSpec) -> None:
    """Raise `UserError` for an environment of several agents, which come in whole teams."""
    if spec.agents > 1:
        raise UserError(f"teams of {spec.agents} agents; only environments of one agent can be tasks")


class TaskVector:
    """A `VectorEnv` over the vectors of several tasks."""

    def __init__(
        self, vectors: dict[int, VectorEnv], task: Array, config: EnvConfig, notes: tuple[str, ...] = ()
    ) -> None:
        """Args:
        vectors: by the index of their task; each has as many environments as play it.
        task: [N] int32, the task of each column.
        config: has the names of all tasks, also of those that are not played here.
        notes: for the user, on top of those of the vectors.
        """
        self.task, self.count = task, len(task)
        self._columns = {index: columns_of(task, index) for index in vectors}
        self._vectors, self._observed = vectors, config.task_observed
        self._first = vectors[int(task[0])]
        spec = joined({config.task_names[index]: vector.spec for index, vector in vectors.items()})
        observation = with_task(spec.observation, len(config.tasks)) if self._observed else spec.observation
        self.spec = dataclasses.replace(
            spec, observation=observation, tasks=config.task_names, notes=(*notes, *spec.notes)
        )
        layout = Layout(step_specs(self.spec, self.count)._asdict())
        self._step = Step(**layout.view(np.zeros(layout.nbytes, np.uint8)))
        if self._observed:
            self._step.observation[TASK][:] = task
        self._targets = {index: self._target(self._columns[index]) for index in vectors}

    def reset(self, seeds: list[int]) -> Step:
        """Open a new episode in each environment."""
        for index, vector in self._vectors.items():
            self._take(index, vector.reset(seeds[self._columns[index]]))
        return self._step

    def step(self, action: Array) -> Step:
        """Play one action in each environment. Those that are processes of their own play at the same time."""
        # Whole arrays, not views with gaps: an emulator may read them as plain memory.
        actions = {index: np.ascontiguousarray(action[columns]) for index, columns in self._columns.items()}
        for index, vector in self._vectors.items():
            if hasattr(vector, "start_step"):
                vector.start_step(actions[index])
        for index, vector in self._vectors.items():
            if hasattr(vector, "finish_step"):
                self._take(index, vector.finish_step())
            else:
                self._take(index, vector.step(actions[index]))
        return self._step

    def encode(self, observation: Any) -> Tree:
        """Return observations of the first column's task as arrays."""
        encoded = self._first.encode(observation)
        if not self._observed:
            return encoded
        count = len(leaves(encoded)[0][1])
        return {**as_dict(encoded), TASK: np.full(count, self.task[0], np.int64)}

    def decode(self, action: Array) -> Any:
        """Return actions in the units of the first column's task."""
        return self._first.decode(action)

    def close(self) -> None:
        """Close the environments of every task."""
        for vector in self._vectors.values():
            vector.close()

    def _target(self, columns: slice) -> Step:
        """Return views of the columns of one task, in the form of its own vector's answers."""
        views = Step(*(map_tree(lambda array: array[columns], field) for field in self._step))
        if not self._observed:
            return views
        entries = {key: part for key, part in views.observation.items() if key != TASK}  # which does not change
        is_bare = not isinstance(self._first.spec.observation, dict)
        return views._replace(observation=next(iter(entries.values())) if is_bare else entries)

    def _take(self, index: int, step: Step) -> None:
        """Copy the answer of one task's vector to its columns."""
        for target, source in zip(self._targets[index], step, strict=True):
            assign(target, ..., source)


def columns_of(task: Array, index: int) -> slice:
    """Return the columns that play a task. Tasks take turns, so a slice is enough, and needs no copies."""
    positions = np.flatnonzero(task == index)
    step = int(positions[1] - positions[0]) if len(positions) > 1 else 1
    columns = slice(int(positions[0]), int(positions[-1]) + 1, step)
    assert np.array_equal(np.arange(len(task))[columns], positions)
    return columns


def joined(specs: dict[str, EnvSpec]) -> EnvSpec:
    """Return the spec of tasks together; raise `UserError` where they cannot share weights."""
    (first_name, first), *others = specs.items()
    for name, spec in others:
        if problem := difference(first, spec):
            raise UserError(
                f"env.tasks: {first_name} and {name} cannot share one set of weights: {problem}; {advice(first, spec)}"
            )
    notes = tuple(dict.fromkeys(note for spec in specs.values() for note in spec.notes))
    frames = {spec.frames_per_step for spec in specs.values()}
    # Frames are steps times this; where tasks differ in it, only steps are counted.
    frames_per_step = frames.pop() if len(frames) == 1 else 1
    limits = [spec.time_limit for spec in specs.values()]
    time_limit = max(limits) if all(limits) else 0  # one discount has to suit the longest episodes
    return dataclasses.replace(first, notes=notes, frames_per_step=frames_per_step, time_limit=time_limit)


def with_task(observation: Tree, tasks: int) -> dict[str, Tree]:
    """Return the spec of an observation with the task as one more entry."""
    if isinstance(observation, dict) and TASK in observation:
        raise UserError(f"env.task_observed: the observation has an entry {TASK!r} already; drop it with keys")
    return {**as_dict(observation), TASK: ArraySpec((), "int64", (tasks,))}


def difference(one: EnvSpec, other: EnvSpec) -> str | None:
    """Return the first thing in which two specs differ, in words."""
    ours, theirs = dict(leaves(one.observation, "observation")), dict(leaves(other.observation, "observation"))
    for path in {**ours, **theirs}:
        if ours.get(path) != theirs.get(path):
            return f"{path.replace('/', '.')} is {describe(ours.get(path))} and {describe(theirs.get(path))}"
    if one.action != other.action:
        return f"the action is {action_text(one.action)} and {action_text(other.action)}"
    return None


def advice(one: EnvSpec, other: EnvSpec) -> str:
    """Return what may make two specs the same."""
    if one.observation == other.observation:
        return "choose tasks with the same actions, or give a task a wrapper (module:Wrapper) that translates them"
    if (shape := common_shape(one, other)) is not None:
        return f"env.wrappers=[{{pad: {shape}}}] appends zeros, {{resize: 84}} changes the size of images"
    return "wrappers of a task ({id: ..., wrappers: [...]}) can change its observations"


def common_shape(one: EnvSpec, other: EnvSpec) -> list[int] | None:
    """Return the smallest shape that both fit into, where observations differ in the sizes of an array only."""
    ours, theirs = dict(leaves(one.observation)), dict(leaves(other.observation))
    if ours.keys() != theirs.keys():
        return None
    for path, spec in ours.items():
        like = dataclasses.replace(theirs[path], shape=spec.shape)
        if spec != theirs[path] and spec == like and len(spec.shape) == len(theirs[path].shape):
            return [max(sizes) for sizes in zip(spec.shape, theirs[path].shape, strict=True)]
    return None


def action_text(action: ActionSpec) -> str:
    """Describe an action: `one of 6 choices`, `choices of 3 and 2` or `4 numbers`."""
    if action.choices:
        each = " and ".join(map(str, action.choices))
        return f"one of {each} choices" if len(action.choices) == 1 else f"choices of {each}"
    return f"{action.array.size} numbers"
