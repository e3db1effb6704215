"""One environment that resets itself: the loop that steps every environment that Pronk makes itself.

    terminated   o_0 a_0 | o_1 a_1      o_1 opens the next episode. Step 0 is valid: its discount is 0, so nothing is
                                        bootstrapped from o_1. No step is wasted.
    truncated    o_0 a_0 | o_1 a_1 | o_2    o_1 is the true last observation, so step 0 is valid and bootstraps from it.
                                            Step 1 only resets: a_1 is ignored, the step is not valid, o_2 opens the
                                            next episode.

An episode that ends both ways counts as terminated.
"""

from __future__ import annotations

import math
from typing import Any

from pronk.envs.mistakes import old_api
from pronk.envs.spaces import Encoder, check_shapes
from pronk.types import Step, Tree, assign


class AutoresetEnv:
    """Steps one `gymnasium.Env` and writes its answers into one column of arrays that N environments share."""

    def __init__(self, env: Any, index: int, columns: Step, spec: Tree, encode: Encoder) -> None:
        self._env, self._index, self._columns, self._spec, self._encode = env, index, columns, spec, encode
        self._truncated = False
        self._return, self._length = 0.0, 0

    def reset(self, seed: int) -> None:
        """Abandon the episode and open a new one."""
        self._open(seed)

    def step(self, action: Any) -> None:
        """Play one action, in the environment's units; after a truncation, open the next episode instead."""
        if self._truncated:
            self._open(None)
            return
        answer = self._env.step(action)
        if len(answer) != 5:
            raise old_api(self._env, f"step() returned {len(answer)} values")
        observation, reward, terminated, truncated, info = answer
        reward = float(reward)
        self._return += reward
        self._length += 1
        if terminated:
            returned, length = self._return, self._length
            self._open(None)
            self._write(reward, discount=False, valid=True, episode_return=returned, episode_length=length, info=info)
            return
        self._observe(observation, first=False)
        if truncated:
            self._truncated = True
            self._write(reward, True, True, self._return, self._length, info)
        else:
            self._write(reward, True, True, math.nan, 0, info)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _open(self, seed: int | None) -> None:
        answer = self._env.reset(seed=seed) if seed is not None else self._env.reset()
        # An observation of two numbers could be unpacked like (observation, info).
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
            raise old_api(self._env, "reset() did not return (observation, info)")
        self._truncated = False
        self._return, self._length = 0.0, 0
        self._observe(answer[0], first=True)
        self._write(0.0, discount=True, valid=False, episode_return=math.nan, episode_length=0, info={})

    def _observe(self, observation: Any, first: bool) -> None:
        encoded = self._encode(observation)
        check_shapes(encoded, self._spec, f"environment {self._index}")
        assign(self._columns.observation, self._index, encoded)
        self._columns.first[self._index] = first

    def _write(
        self,
        reward: float,
        discount: bool,
        valid: bool,
        episode_return: float,
        episode_length: int,
        info: dict[str, Any],
    ) -> None:
        columns, index = self._columns, self._index
        columns.reward[index] = reward
        columns.discount[index] = discount
        columns.valid[index] = valid
        columns.episode_return[index] = episode_return
        columns.episode_length[index] = episode_length
        for name, column in columns.info.items():
            column[index] = number_of(info.get(name))


def number_of(value: Any) -> float:
    """Return a number of `info`; NaN for what is missing, not a number, or infinite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan
