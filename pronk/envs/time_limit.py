"""After how many steps the time limit of an environment ends every episode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit

from pronk.envs.frame_skip import skip_of_wrapper


def time_limit_of(env: Any) -> int:
    """Return the limit in steps of the agent: of `TimeLimit` wrappers, over frame skips around them; 0 without any."""
    skip, limits = 1, []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(-(-env._max_episode_steps // skip))
        skip *= skip_of_wrapper(env)
        env = env.env
    return min(limits, default=0)
