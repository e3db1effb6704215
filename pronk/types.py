"""The data types of Pronk, each with its shape.

T is the length of an unroll, N the number of environments of one actor, B the number of columns of a batch. Arrays are
time-major. A `Tree` is an array or a dict of trees: a Dict or Tuple observation keeps its structure, with string keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

Array = Any  # numpy.ndarray in actors and transports, torch.Tensor in the learner
Tree = Any  # Array | dict[str, Tree]


class UserError(Exception):
    """A mistake in what the user gave. Shown as one line without a traceback; the exit code is 2."""


class Failure(Exception):  # noqa: N818 - reads as what happened
    """The run cannot continue. The message holds the root cause; shown without Pronk's own traceback, exit code 1."""


@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of one array, without its leading time and environment axes."""

    shape: tuple[int, ...]
    dtype: str
    categories: tuple[int, ...] = ()
    """For class labels: how many classes each element has (labels count from 0). Empty for plain numbers."""
    words: int = 0
    """For text: the size of the vocabulary. The array holds one number per word, from 1 to this, then zeros."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def batched(self, *leading: int) -> ArraySpec:
        """The same array with leading axes."""
        return replace(self, shape=(*leading, *self.shape))


@dataclass(frozen=True)
class ActionSpec:
    """What the agent chooses at each step, in the agent's own units.

    Choices count from 0; real numbers lie in [-1, 1]. The environment's adapter translates both (a Discrete space that
    starts at 5, a Box from -2 to 2), so networks and losses never see the environment's units.
    """

    shape: tuple[int, ...]
    choices: tuple[int, ...] = ()
    """How many options each discrete choice has. Empty: the action is `shape` real numbers."""

    @property
    def array(self) -> ArraySpec:
        """The array that holds one action."""
        return ArraySpec(self.shape, "int64" if self.choices else "float32", self.choices)

    @property
    def parameter_count(self) -> int:
        """How many numbers describe a distribution over these actions: logits, or means and log standard deviations."""
        return sum(self.choices) if self.choices else 2 * self.array.size


@dataclass(frozen=True)
class EnvSpec:
    """All that the rest of Pronk knows about an environment."""

    observation: Tree  # of ArraySpec
    action: ActionSpec
    frames_per_step: int = 1
    """Emulator frames per decision (frame skip). Pronk counts steps and shows frames where they differ."""
    tasks: tuple[str, ...] = ("default",)
    """Names of the tasks that the environments play. `VectorEnv.task` and `Unroll.task` are indices into it."""
    agents: int = 1
    """Agents of one team, each of them a column: vectors come in whole teams."""
    info: tuple[str, ...] = ()
    """Numbers of the environments' `info` that become metrics (`env.info`)."""
    notes: tuple[str, ...] = ()
    """What was done to the observations without being asked: one line each, shown to the user."""
    step_seconds: float = field(default=0.0, compare=False)
    """About how long one step of one environment takes, where it was tried and is slow; else 0."""
    reset_seconds: float = field(default=0.0, compare=False)
    """Likewise, of one reset."""
    time_limit: int = field(default=0, compare=False)
    """Steps after which every episode is truncated, where that is known; else 0."""

    @property
    def has_action_mask(self) -> bool:
        """Whether a Dict observation says which choices are allowed."""
        return isinstance(self.observation, dict) and "action_mask" in self.observation


class Step(NamedTuple):
    """The answer of N environments to one action each: the next observation, and what the action led to."""

    observation: Tree  # [N, ...]    to act on next
    first: Array  # [N] bool         the observation opens an episode
    reward: Array  # [N]             raw
    discount: Array  # [N]           0 where the episode terminated, else 1 (a truncation is 1)
    valid: Array  # [N] bool         False where the observation does not follow from the action
    episode_return: Array  # [N]     of the episode that ended with this action, else NaN
    episode_length: Array  # [N]     in steps, likewise, else 0
    info: dict[str, Array] = {}  # noqa: RUF012  of [N], by the names in `EnvSpec.info`; NaN where none was given


class Unroll(NamedTuple):
    """T steps of N environments under one policy, time-major. The learner's batch is the same type with a larger N.

        o_0 a_0 r_0   o_1 a_1 r_1   ...   o_{T-1} a_{T-1} r_{T-1}   o_T

    One rule makes every way of resetting an environment right: a step whose successor does not follow from its action
    is not `valid` and has weight zero in every loss and every mean. A terminated step is valid whatever follows it,
    because its discount is 0. A truncated step is valid where the next row holds the true last observation, from which
    it bootstraps. `envs/autoreset.py` and `envs/gymnasium_vector.py` fill the field; nothing else knows how
    environments reset.
    """

    observation: Tree  # [T+1, N, ...]  o_T only bootstraps; it is also o_0 of the next unroll
    first: Array  # [T+1, N] bool       o_t opens an episode: the core's state is reset before it
    action: Array  # [T, N, ...]
    log_prob: Array  # [T, N]           log mu(a_t | o_t) of the policy that acted
    reward: Array  # [T, N]             as the environment gave it; the learner clips
    discount: Array  # [T, N]           0 where the episode terminated at step t, else 1
    valid: Array  # [T, N] bool
    episode_return: Array  # [T, N]     of the episode that ended at step t (raw, whole game), else NaN
    episode_length: Array  # [T, N]     in steps, likewise, else 0
    state: Tree  # [N, ...]             the core's state before o_0
    version: Array  # [N]               of the parameters that acted
    task: Array  # [N] int32            index into `EnvSpec.tasks`: the task that each environment plays
    environment: Array  # [N] int64     its number in the run, the same in all its unrolls
    info: dict[str, Array] = {}  # noqa: RUF012  of [T, N], as in `Step`


class Parameters(NamedTuple):
    """A network's weights as one block of bytes, and how many updates made them."""

    version: int
    block: Array  # [bytes] uint8


class PlainMlp(NamedTuple):
    """A policy that is fully connected layers and nothing else, so that actors need no torch to compute it.

    Everything is named as in the network, and `places` has where each tensor is in a block of `Parameters`. All of it
    is plain data.
    """

    scales: dict[str, str]  # of the observation's entries that are normalised: path -> the module with factor and shift
    layers: list[str]  # the modules with weight and bias of each hidden layer
    activation: str
    head: str  # likewise, of the logits or the means
    log_std: str | None  # the tensor, for real-valued actions
    places: dict[str, tuple[int, tuple[int, ...]]]  # offset in floats, shape
    nbytes: int  # of the block


class Value(Protocol):
    """What a loss sees of the values of a batch. `Network.value` makes it.

    The network may learn normalised values (PopArt, per task) or a distribution (HL-Gauss); the loss works in the units
    of the return and leaves the rest to these methods.
    """

    estimate: Array
    """[T+1, B] V(x_t) in the units of the return. Gradients flow through it."""

    def error(self, target: Array) -> Array:
        """[T, B] the baseline loss of each step, for targets v_t in the units of the return."""
        ...

    def scaled(self, advantage: Array) -> Array:
        """[T, B] the advantage in the scale that the policy gradient should see."""
        ...

    def observe(self, target: Array, advantage: Array, valid: Array) -> None:
        """Add targets and advantages [T, B] of valid steps to the sums of the network's statistics, if it keeps any."""
        ...


def step_specs(spec: EnvSpec, envs: int) -> Step:
    """Return the shape of every field of a `Step` of so many environments."""
    return Step(
        observation=map_tree(lambda leaf: leaf.batched(envs), spec.observation),
        first=ArraySpec((envs,), "bool"),
        reward=ArraySpec((envs,), "float64"),
        discount=ArraySpec((envs,), "bool"),
        valid=ArraySpec((envs,), "bool"),
        episode_return=ArraySpec((envs,), "float32"),
        episode_length=ArraySpec((envs,), "int32"),
        info={name: ArraySpec((envs,), "float32") for name in spec.info},
    )


def unroll_specs(spec: EnvSpec, state: Tree, length: int, envs: int) -> Unroll:
    """Return the shape of every field of an unroll. It is known before the run starts."""
    per_step = {
        "log_prob": "float32",
        "reward": "float32",
        "discount": "float32",
        "valid": "bool",
        "episode_return": "float32",
        "episode_length": "int32",
    }
    return Unroll(
        observation=map_tree(lambda leaf: leaf.batched(length + 1, envs), spec.observation),
        first=ArraySpec((length + 1, envs), "bool"),
        action=spec.action.array.batched(length, envs),
        state=map_tree(lambda leaf: leaf.batched(envs), state),
        version=ArraySpec((envs,), "int64"),
        task=ArraySpec((envs,), "int32", (len(spec.tasks),)),
        environment=ArraySpec((envs,), "int64"),
        info={name: ArraySpec((length, envs), "float32") for name in spec.info},
        **{name: ArraySpec((length, envs), dtype) for name, dtype in per_step.items()},
    )


def map_tree(function: Any, *trees: Tree) -> Tree:
    """Apply a function to the corresponding leaves of trees of one structure."""
    if isinstance(trees[0], dict):
        return {key: map_tree(function, *(tree[key] for tree in trees)) for key in trees[0]}
    return function(*trees)


def map_unroll(function: Any, *unrolls: Unroll) -> Unroll:
    """Apply a function to the corresponding arrays of unrolls."""
    return Unroll(*(map_tree(function, *fields) for fields in zip(*unrolls, strict=True)))


def assign(target: Tree, index: Any, source: Tree) -> None:
    """Do `target[index] = source` for every leaf."""
    if isinstance(target, dict):
        for key, part in target.items():
            assign(part, index, source[key])
    else:
        target[index] = source


def leaves(tree: Tree, path: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a tree with their paths, in a fixed order."""
    if isinstance(tree, dict):
        return [leaf for key in tree for leaf in leaves(tree[key], f"{path}/{key}" if path else key)]
    return [(path, tree)]
