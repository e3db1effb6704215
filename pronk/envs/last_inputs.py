"""Adds the last action and the last reward to the observation.

As part of the observation they travel, align and reset like everything else, and no other file knows about them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pronk.envs.base import VectorEnv
from pronk.types import Array, ArraySpec, EnvSpec, Step, Tree, UserError, assign, map_tree


class LastInputs:
    """A `VectorEnv` whose observations include the last action and its reward; zeros where an episode opens."""

    def __init__(self, env: VectorEnv, action: bool, reward: bool) -> None:
        self._env, self._action, self._reward = env, action, reward
        self.count, self.task = env.count, env.task
        self.spec = with_last_inputs(env.spec, action, reward)
        self.decode = env.decode
        self._added: dict[str, Array] = {}  # to the last observation

    def reset(self, seeds: list[int]) -> Step:
        """Open a new episode in every environment."""
        nothing = np.zeros((self.count, *self.spec.action.shape), self.spec.action.array.dtype)
        return self._extended(self._env.reset(seeds), nothing)

    def step(self, action: Array) -> Step:
        """Play one action in each environment."""
        return self._extended(self._env.step(action), action)

    def encode(self, observation: Any) -> Tree:
        """Return the observations without last action and reward, which a raw observation lacks; see `extend`."""
        return self._env.encode(observation)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()

    def _extended(self, step: Step, action: Array) -> Step:
        added = self._inputs(step.first, action, step.reward)
        # An environment that was not stepped shows its last observation once more: the action was not played.
        repeated = ~(step.valid | step.first)
        if repeated.any():
            assign(added, repeated, map_tree(lambda array: array[repeated], self._added))
        self._added = added
        return step._replace(observation={**as_dict(step.observation), **added})

    def extend(self, observation: Tree, first: Array, action: Array, reward: Array) -> dict[str, Tree]:
        """Return the observation [N, ...] with the action [N, ...] and the reward [N] that led to it."""
        return {**as_dict(observation), **self._inputs(first, action, reward)}

    def _inputs(self, first: Array, action: Array, reward: Array) -> dict[str, Array]:
        continues = ~first
        inputs = {}
        if self._action:
            # Labels move up by one so that 0 can mean "no action yet".
            shift = 1 if self.spec.action.choices else 0
            inputs["last_action"] = (action + shift) * continues.reshape(-1, *[1] * (action.ndim - 1))
        if self._reward:
            inputs["last_reward"] = np.clip(reward, -1.0, 1.0).astype(np.float32) * continues
        return inputs


def with_last_inputs(spec: EnvSpec, action: bool, reward: bool) -> EnvSpec:
    """Return the spec of the extended observation."""
    observation = as_dict(spec.observation)
    taken = {"last_action", "last_reward"} & observation.keys()
    if taken:
        names = " and ".join(sorted(taken))
        raise UserError(f"network.last_action, network.last_reward: the observation has {names} already; drop them")
    if action:
        array = spec.action.array
        observation["last_action"] = ArraySpec(array.shape, array.dtype, tuple(n + 1 for n in array.categories))
    if reward:
        observation["last_reward"] = ArraySpec((), "float32")
    return dataclasses.replace(spec, observation=observation)


def as_dict(observation: Tree) -> dict[str, Tree]:
    """Return a copy that can be extended: a bare array becomes the entry `observation`."""
    return dict(observation) if isinstance(observation, dict) else {"observation": observation}
