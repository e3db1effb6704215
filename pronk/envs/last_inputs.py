"""Adds the last action and the last reward to the observation.

As part of the observation they travel, align and reset like everything else, so no other file knows of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pronk.envs.base import VectorEnv
from pronk.types import Array, ArraySpec, EnvSpec, Step, Tree, UserError


class LastInputs:
    """A `VectorEnv` whose observations also say what was done and what it earned; zeros where an episode opens."""

    def __init__(self, env: VectorEnv, action: bool, reward: bool) -> None:
        self._env, self._action, self._reward = env, action, reward
        self.count, self.task = env.count, env.task
        self.spec = with_last_inputs(env.spec, action, reward)
        self.decode = env.decode

    def reset(self, seeds: list[int]) -> Step:
        """Begin new episodes."""
        step = self._env.reset(seeds)
        return self._extended(step, np.zeros((self.count, *self.spec.action.shape), self.spec.action.array.dtype))

    def step(self, action: Array) -> Step:
        """Play, and remember."""
        return self._extended(self._env.step(action), action)

    def encode(self, observation: Any) -> Tree:
        """Of a single observation it cannot be known what came before it; see `extend`."""
        return self._env.encode(observation)

    def close(self) -> None:
        """End the environments."""
        self._env.close()

    def _extended(self, step: Step, action: Array) -> Step:
        return step._replace(observation=self.extend(step.observation, step.first, action, step.reward))

    def extend(self, observation: Tree, first: Array, action: Array, reward: Array) -> dict[str, Tree]:
        """The observation [N, ...] with the action [N, ...] and the reward [N] that led to it."""
        going_on = ~first
        extended = as_dict(observation)
        if self._action:
            # Labels move up by one so that 0 can mean "no action yet".
            shift = 1 if self.spec.action.choices else 0
            extended["last_action"] = (action + shift) * going_on.reshape(-1, *[1] * (action.ndim - 1))
        if self._reward:
            extended["last_reward"] = np.clip(reward, -1.0, 1.0).astype(np.float32) * going_on
        return extended


def with_last_inputs(spec: EnvSpec, action: bool, reward: bool) -> EnvSpec:
    """The spec of the extended observation."""
    observation = as_dict(spec.observation)
    taken = {"last_action", "last_reward"} & observation.keys()
    if taken:
        raise UserError(
            f"the observation has its own {' and '.join(sorted(taken))}; leave out network.last_action/reward"
        )
    if action:
        array = spec.action.array
        observation["last_action"] = ArraySpec(array.shape, array.dtype, tuple(n + 1 for n in array.categories))
    if reward:
        observation["last_reward"] = ArraySpec((), "float32")
    return dataclasses.replace(spec, observation=observation)


def as_dict(observation: Tree) -> dict[str, Tree]:
    """A copy that can be extended: a bare array becomes the entry `observation`."""
    return dict(observation) if isinstance(observation, dict) else {"observation": observation}
