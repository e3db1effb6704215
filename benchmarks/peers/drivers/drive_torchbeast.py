"""TorchBeast's MonoBeast on Pong, run from a checkout. It cannot do the other works: its network is Atari's.

Source of the settings: the example in TorchBeast's README.md. Tuned to two cores: 4 actors (its default) instead of 45,
and its default of 2 learner threads. PolyBeast, its faster half in C++, is not run: it has to be built with a gRPC of
2019.

Patched here while it runs, nothing in the checkout is changed:
- `gym.make` gives the game of today's ale-py, through Gymnasium, with the interface of Gym 0.23 and older: `reset`
  returns an observation, `step` four values, `seed` sets the seed of the next reset, `np_random` has `randint`.
- `monobeast.learn` also tells the clock about each update, and ends the program when enough was measured.
"""

from __future__ import annotations

import sys
from typing import Any

import ale_py
import gym
import gymnasium
import numpy as np
from measuring import Meter, Task, leave, parse, report

ARGUMENTS = [
    *("--env", "PongNoFrameskip-v4", "--num_actors", "4", "--batch_size", "4", "--unroll_length", "80"),
    *("--learning_rate", "0.0004", "--epsilon", "0.01", "--entropy_cost", "0.01", "--total_steps", "30000000"),
    *("--disable_checkpoint", "--disable_cuda"),
]


class OldPong(gym.Env):
    """Gymnasium's environment with the interface of Gym 0.23."""

    def __init__(self, name: str) -> None:
        gymnasium.register_envs(ale_py)
        self._new = gymnasium.make(name)
        self._seed: int | None = None
        self.spec = self._new.spec
        self.ale = self._new.unwrapped.ale
        self.observation_space = gym.spaces.Box(0, 255, self._new.observation_space.shape, np.uint8)
        self.action_space = gym.spaces.Discrete(int(self._new.action_space.n))
        self.np_random = np.random.RandomState()

    def get_action_meanings(self) -> list[str]:
        return self._new.unwrapped.get_action_meanings()

    def seed(self, seed: int | None = None) -> list[int | None]:
        self._seed = None if seed is None else seed % 2**31
        self.np_random = np.random.RandomState(self._seed)
        return [seed]

    def reset(self, **_: Any) -> np.ndarray:
        seed, self._seed = self._seed, None
        return self._new.reset(seed=seed)[0]

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self._new.step(action)
        return observation, float(reward), terminated or truncated, info


def main() -> None:
    task = parse()
    if task.checkout is None:
        raise SystemExit("--checkout PATH is required: a checkout of https://github.com/facebookresearch/torchbeast")
    sys.path.insert(0, str(task.checkout))
    gym.make = OldPong
    from torchbeast import monobeast

    flags = monobeast.parser.parse_args([*ARGUMENTS, "--savedir", str(task.folder)])
    monobeast.learn = watched(monobeast.learn, task, flags.unroll_length * flags.batch_size)
    monobeast.train(flags)


def watched(learn: Any, task: Task, steps_per_update: int) -> Any:
    meter, updates = Meter(task), 0

    def watched_learn(*arguments: Any, **more: Any) -> Any:
        nonlocal updates
        stats = learn(*arguments, **more)
        updates += 1
        if meter.updated(updates * steps_per_update):
            report(meter, ["torch", "gym", "ale-py"], envs=4)
            leave()
        return stats

    return watched_learn


if __name__ == "__main__":
    main()
