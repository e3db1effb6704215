"""N environments, stepped one after another in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pronk.envs.autoreset import AutoresetEnv
from pronk.envs.frame_skip import frames_per_step
from pronk.envs.spaces import translation
from pronk.envs.time_limit import time_limit_of
from pronk.envs.wrappers import notes_of
from pronk.layout import Layout
from pronk.types import Array, EnvSpec, Step, step_specs


class SyncVector:
    """A `VectorEnv` over single environments; see `autoreset.py` for how each is stepped."""

    def __init__(self, make_one: Callable[[], Any], count: int, info: tuple[str, ...] = ()) -> None:
        envs = [make_one() for _ in range(count)]
        observation, action, self.encode, self.decode = translation(envs[0].observation_space, envs[0].action_space)
        self.spec = EnvSpec(
            observation,
            action,
            frames_per_step(envs[0]),
            info=info,
            notes=notes_of(envs[0]),
            time_limit=time_limit_of(envs[0]),
        )
        self.count, self.task = count, np.zeros(count, np.int32)
        layout = Layout(step_specs(self.spec, count)._asdict())
        self._columns = Step(**layout.view(np.zeros(layout.nbytes, np.uint8)))
        self._envs = [
            AutoresetEnv(env, index, self._columns, observation, self.encode) for index, env in enumerate(envs)
        ]

    def reset(self, seeds: list[int]) -> Step:
        """Open a new episode in each environment."""
        for env, seed in zip(self._envs, seeds, strict=True):
            env.reset(seed)
        return self._columns

    def step(self, action: Array) -> Step:
        """Play one action in each environment."""
        for env, one in zip(self._envs, self.decode(action), strict=True):
            env.step(one)
        return self._columns

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()
