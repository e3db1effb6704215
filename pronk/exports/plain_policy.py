"""A trained policy with batched arrays in and batched arrays out: the module that every format exports.

    inputs     observation, or observation.KEY for each entry of a Dict               [B, ...]
               first      the observation opens an episode: the state is cleared      [B] bool
               reward     of the last action, where the network sees it               [B]
               state.*    the recurrent state; zeros at the start                     [B, ...]
    outputs    action     the most probable one, in the environment's units           [B, ...]
               logits     of discrete choices, -1e9 where masked; or mean and log_std, in the agent's units
               next.*     the state to pass in with the next observation

`first`, `reward`, `state.*` and `next.*` exist only for policies that need them. What Pronk computes between the
environment's arrays and the network (scaled bytes, one-hot labels, masks, clipped rewards) is part of the module.
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

ArrayFunction = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class ActionUnits(NamedTuple):
    """From the agent's actions to the environment's: `start + choice`, or `middle + real x reach`, clipped."""

    start: np.ndarray | None
    middle: np.ndarray | None = None
    reach: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def action_units(env: VectorEnv) -> ActionUnits:
    """Measure the translation by calling the environment's own `decode`, so that no adapter is copied here."""
    action = env.spec.action.array

    def at(value: float) -> np.ndarray:
        return np.asarray(env.decode(np.full((1, *action.shape), value, action.dtype)))[0]

    if env.spec.action.choices:
        return ActionUnits(at(0).astype(np.int64))
    middle, low, high = (at(value).astype(np.float32) for value in (0.0, -FAR, FAR))
    unbounded = [np.where(np.abs(bound) > FAR / 10, np.copysign(np.inf, bound), bound) for bound in (low, high)]
    return ActionUnits(None, middle, (at(1.0) - middle).astype(np.float32), *(b.astype(np.float32) for b in unbounded))


class PlainPolicy(nn.Module):
    """See the module's docstring. `inputs` and `outputs` are the specs by name, in the order of `forward`."""

    _start: Tensor
    _middle: Tensor
    _reach: Tensor
    _low: Tensor
    _high: Tensor

    def __init__(self, network: Network, units: ActionUnits, last_inputs: bool) -> None:
        super().__init__()
        self.network, self.action = network.eval(), network.spec.action
        self.is_masked = network.spec.has_action_mask
        entries = dict(leaves(network.spec.observation))
        last = {name: entries.pop(name) for name in LAST if last_inputs and name in entries}
        self.observed = {path: observation_name(path) for path in entries}  # path in the tree -> name of the input
        self.inputs = {self.observed[path]: leaf for path, leaf in entries.items()}
        self.state = {state_name(path): leaf for path, leaf in leaves(network.state_spec)}
        if "last_action" in last:
            self.state["state.last_action"] = last["last_action"]
        if self.state or last:
            self.inputs["first"] = ArraySpec((), "bool")
        if "last_reward" in last:
            self.inputs["reward"] = ArraySpec((), "float32")
        self.inputs |= self.state
        reals = ArraySpec(self.action.shape, "float32")
        logits = {"logits": ArraySpec((sum(self.action.choices),), "float32")}
        self.outputs = {"action": self.action.array}
        self.outputs |= logits if self.action.choices else {"mean": reals, "log_std": reals}
        self.outputs |= {next_name(name): leaf for name, leaf in self.state.items()}
        for name, value in units._asdict().items():
            self.register_buffer(f"_{name}", None if value is None else torch.from_numpy(np.ascontiguousarray(value)))
        self.eval()

    def forward(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """Every input, batched -> every output, batched."""
        inputs = dict(zip(self.inputs, arrays, strict=True))
        first = inputs.get("first", torch.zeros_like(arrays[0].reshape(arrays[0].shape[0], -1)[:, 0], dtype=torch.bool))
        observation = self._observation(inputs, first)
        timed = map_tree(lambda array: array.unsqueeze(0), observation)
        state = nested(self.network.state_spec, lambda path: inputs[state_name(path)])
        policy, state = self.network.policy(timed, first.unsqueeze(0), state)
        choice = self.network.distribution(policy, timed).mode()[0]
        after = {state_name(path): array for path, array in leaves(state)}
        if "state.last_action" in self.state:
            after["state.last_action"] = choice + 1 if self.action.choices else choice
        parameters = self._distribution(policy[0], observation)
        return self._in_env_units(choice), *parameters, *(after[name] for name in self.state)

    def _observation(self, inputs: dict[str, Tensor], first: Tensor) -> Tree:
        """The observation as the network was trained on it, with last action and last reward."""

        def entry(path: str) -> Tensor:
            if path in self.observed:
                return inputs[self.observed[path]]
            if path == "last_reward":
                return inputs["reward"].clamp(-1.0, 1.0) * ~first
            last = inputs["state.last_action"]
            return last * ~first.reshape(-1, *[1] * (last.dim() - 1))

        return nested(self.network.spec.observation, entry)

    def _distribution(self, policy: Tensor, observation: Tree) -> list[Tensor]:
        """Logits, or mean and log_std."""
        if self.action.choices:
            return [policy.masked_fill(observation["action_mask"] == 0, MASKED) if self.is_masked else policy]
        return [half.reshape(-1, *self.action.shape) for half in policy.chunk(2, -1)]

    def _in_env_units(self, choice: Tensor) -> Tensor:
        if self.action.choices:
            return choice + self._start
        return torch.minimum(torch.maximum(self._middle + choice * self._reach, self._low), self._high)


def as_function(module: Callable[..., tuple[Tensor, ...]], policy: PlainPolicy) -> ArrayFunction:
    """Call a torch module that has the policy's inputs and outputs with NumPy arrays."""

    @torch.no_grad()
    def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = module(*(torch.from_numpy(inputs[name]) for name in policy.inputs))
        return {name: array.numpy() for name, array in zip(policy.outputs, outputs, strict=True)}

    return run


def observation_name(path: str) -> str:
    """The input's name. A bare array is `observation`, also where a last action made it an entry of a dict."""
    return "observation" if path in ("", "observation") else f"observation.{path.replace('/', '.')}"


def state_name(path: str) -> str:
    return f"state.{path.replace('/', '.')}" if path else "state"


def next_name(name: str) -> str:
    """The output that becomes this input of the next step; ONNX does not allow one name for both."""
    return "next" + name.removeprefix("state")


def nested(spec: Tree, entry: Callable[[str], Tensor], path: str = "") -> Tree:
    """A tree of the structure of `spec`, with `entry(path)` for each leaf."""
    if isinstance(spec, dict):
        return {key: nested(part, entry, f"{path}/{key}" if path else key) for key, part in spec.items()}
    return entry(path)
