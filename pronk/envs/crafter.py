"""Crafter, which has the API of the old gym package, as a Gymnasium environment.

Importing this module registers `CrafterReward-v1` and `CrafterNoReward-v1`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np


class Crafter(gym.Env):
    """A world of 64x64 cells with 22 achievements; the observation is a picture of 64x64 pixels."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self, reward: bool = True, length: int = 10_000, size: int = 64, render_mode: str | None = None
    ) -> None:
        import crafter

        self.render_mode = render_mode
        self._make = lambda seed: crafter.Env(size=(size, size), reward=reward, length=length, seed=seed)
        self._env: Any = self._make(0)
        self.observation_space = gym.spaces.Box(0, 255, (size, size, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(len(self._env.action_names))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Open a new world. Crafter takes its seed when it is made, and draws a world for each episode from it."""
        super().reset(seed=seed)
        if seed is not None:
            self._env = self._make(seed)
        return self._env.reset(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one action. The player's death ends an episode; `length` truncates it."""
        observation, reward, done, info = self._env.step(int(action))
        died = info["discount"] == 0  # Crafter marks only the player's death like this
        info = deepcopy(info)  # the next step changes parts of it
        return observation, float(reward), bool(done and died), bool(done and not died), info

    def render(self) -> Any:
        """Return a picture of 512x512 pixels."""
        return self._env.render((512, 512))


gym.register("CrafterReward-v1", "pronk.envs.crafter:Crafter")
gym.register("CrafterNoReward-v1", "pronk.envs.crafter:Crafter", kwargs={"reward": False})
