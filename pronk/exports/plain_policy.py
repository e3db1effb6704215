"""A trained policy as plain batched arrays in, plain batched arrays out: what is exported.

    inputs     observation, or observation.KEY for each entry of a Dict        [B, ...]
               first      an episode opens here: whatever is remembered is cleared before it   [B] bool
               reward     of the last action, where the network sees it        [B]
               state.*    what the network remembers; begin with zeros         [B, ...]
    outputs    action     the likeliest, in the environment's own units        [B, ...]
               logits     of discrete choices, forbidden ones at -1e9; or mean and log_std, in the agent's units
               next.*     the state to hand in with the next observation

`first`, `reward`, `state.*` and `next.*` are there only for agents that need them. Everything that Pronk does between
the environment's arrays and the network (bytes scaled, labels one-hot, masks, rewards clipped) is inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pronk.envs import VectorEnv
from pronk.networks import Network
from pronk.networks.distributions import MASKED
from pronk.types import ArraySpec, Tree, leaves, map_tree

LAST = ("last_action", "last_reward")  # what `envs/last_inputs.py` adds to an observation
FAR = 1e30  # an action beyond any bound


class Units(NamedTuple):
    """The environment's own units: `start + choice`, or `middle + real x reach` between `low` and `high`."""

    start: np.ndarray | None
    middle: np.ndarray | None = None
    reach: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def units_of(env: VectorEnv) -> Units:
    """Asked of the adapter itself, so that every environment's translation is known, whoever wrote it."""
    action = env.spec.action.array

    def at(value: float) -> np.ndarray:
        return np.asarray(env.decode(np.full((1, *action.shape), value, action.dtype)))[0]

    if env.spec.action.choices:
        return Units(at(0).astype(np.int64))
    middle, low, high = (at(value).astype(np.float32) for value in (0.0, -FAR, FAR))
    unbounded = [np.where(np.abs(bound) > FAR / 10, np.copysign(np.inf, bound), bound) for bound in (low, high)]
    return Units(None, middle, (at(1.0) - middle).astype(np.float32), *(b.astype(np.float32) for b in unbounded))


class PlainPolicy(nn.Module):
    """See the module's docstring. `inputs` and `outputs` name the arrays, in the order of `forward`."""

    _start: Tensor
    _middle: Tensor
    _reach: Tensor
    _low: Tensor
    _high: Tensor

    def __init__(self, network: Network, units: Units, last_inputs: bool) -> None:
        super().__init__()
        self.network, self.units = network.eval(), units
        spec = network.spec
        self.action = spec.action
        seen = dict(leaves(spec.observation))
        last = {name: seen.pop(name) for name in LAST if last_inputs and name in seen}
        self.observed = {path: observation_name(path) for path in seen}
        self.sees_action, self.sees_reward = (name in last for name in LAST)
        self.inputs = {self.observed[path]: leaf for path, leaf in seen.items()}
        self.remembers = {state_name(path): leaf for path, leaf in leaves(network.state_spec)}
        if self.sees_action:
            self.remembers["state.last_action"] = last["last_action"]
        if self.remembers or last:
            self.inputs["first"] = ArraySpec((), "bool")
        if self.sees_reward:
            self.inputs["reward"] = ArraySpec((), "float32")
        self.inputs |= self.remembers
        reals = ArraySpec(spec.action.shape, "float32")
        told = {"logits": ArraySpec((sum(spec.action.choices),), "float32")} if spec.action.choices else {}
        self.outputs = {"action": spec.action.array, **(told or {"mean": reals, "log_std": reals})}
        self.outputs |= {next_name(name): leaf for name, leaf in self.remembers.items()}
        for name, value in units._asdict().items():
            self.register_buffer(f"_{name}", None if value is None else torch.from_numpy(np.ascontiguousarray(value)))
        self.eval()

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """Every input, batched -> every output, batched."""
        given = dict(zip(self.inputs, arrays, strict=True))
        first = given.get("first", torch.zeros_like(arrays[0].reshape(arrays[0].shape[0], -1)[:, 0], dtype=torch.bool))
        observation = self._observation(given, first)
        timed = map_tree(lambda array: array.unsqueeze(0), observation)
        state = nested(self.network.state_spec, lambda path: given[state_name(path)])
        policy, state = self.network.policy(timed, first.unsqueeze(0), state)
        choice = self.network.distribution(policy, timed).mode()[0]
        remembered = {state_name(path): array for path, array in leaves(state)}
        if self.sees_action:
            remembered["state.last_action"] = choice + 1 if self.action.choices else choice
        told = self._told(policy[0], observation)
        return self._in_own_units(choice), *told, *(remembered[name] for name in self.remembers)

    def _observation(self, given: dict[str, Tensor], first: Tensor) -> Tree:
        going_on = ~first

        def entry(path: str) -> Tensor:
            if path in self.observed:
                return given[self.observed[path]]
            if path == "last_reward":
                return given["reward"].clamp(-1.0, 1.0) * going_on
            last = given["state.last_action"]
            return last * going_on.reshape(-1, *[1] * (last.dim() - 1))

        return nested(self.network.spec.observation, entry)

    def _told(self, policy: Tensor, observation: Tree) -> list[Tensor]:
        if self.action.choices:
            return [policy.masked_fill(observation["action_mask"] == 0, MASKED) if self.is_masked else policy]
        return [half.reshape(-1, *self.action.shape) for half in policy.chunk(2, -1)]

    @property
    def is_masked(self) -> bool:
        """Whether an `action_mask` rules choices out."""
        return self.network.spec.has_action_mask

    def _in_own_units(self, choice: Tensor) -> Tensor:
        if self.action.choices:
            return choice + self._start
        return torch.minimum(torch.maximum(self._middle + choice * self._reach, self._low), self._high)


def observation_name(path: str) -> str:
    """The input's name; a bare array, also under the name it has beside the last action, is `observation`."""
    return "observation" if path in ("", "observation") else f"observation.{path.replace('/', '.')}"


def state_name(path: str) -> str:
    """The name of an entry of the network's state, among inputs and outputs."""
    return f"state.{path.replace('/', '.')}" if path else "state"


def next_name(name: str) -> str:
    """The output that becomes this input of the next step. ONNX wants two names."""
    return "next" + name.removeprefix("state")


def nested(spec: Tree, entry: Callable[[str], Tensor], path: str = "") -> Tree:
    """A tree of the structure of `spec`, with `entry(path)` for each leaf."""
    if isinstance(spec, dict):
        return {key: nested(part, entry, f"{path}/{key}" if path else key) for key, part in spec.items()}
    return entry(path)
