"""Environments that misbehave, each in one way, named `faulty:Name`, and two that behave."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np

from pronk.envs.catch import CatchVectorEnv

EPISODE = 10


class SlowCatch(CatchVectorEnv):
    """Catch at leisure, and a word to the actor's log in the second unroll: the first has been delivered by then."""

    def __init__(self, num_envs: int, unroll_length: int = 20) -> None:
        super().__init__(num_envs)
        self._steps, self._enough = 0, unroll_length + 1

    def step(self, actions: np.ndarray) -> Any:
        time.sleep(0.01)
        self._steps += 1
        if self._steps == self._enough:
            print("delivered", flush=True)
        return super().step(actions)


class Corridor(gym.Env[np.ndarray, np.int64]):
    """Well-behaved: ten steps, a reward of 1 each."""

    def __init__(self, after: int = 0) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._after = after
        self._steps = self._place = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._place = 0
        return self._see(), {}

    def step(self, action: np.int64) -> Any:
        self._steps += 1
        self._place += 1
        return self._see(), self._reward(), self._place == EPISODE, False, {}

    def _see(self) -> np.ndarray:
        return np.full(3, self._place / EPISODE, np.float32)

    def _reward(self) -> float:
        return 1.0

    @property
    def _is_time(self) -> bool:
        return self._steps > self._after


class Talkative(Corridor):
    """Prints at every reset: in Python, and as a library in C does."""

    def reset(self, **options):
        print("a new corridor")
        os.write(1, b"a new corridor\n")
        ctypes.CDLL(None).puts(b"a new corridor")  # into a buffer of C
        return super().reset(**options)


class SlowToMake(Corridor):
    def __init__(self, seconds: float) -> None:
        time.sleep(seconds)
        super().__init__()


class SegfaultsInInit(Corridor):
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class ExitsInInit(Corridor):
    def __init__(self, code: int = 0) -> None:
        os._exit(code)


class CallsSysExit(Corridor):
    def __init__(self) -> None:
        sys.exit(0)


class LeavesThread(Corridor):
    """A thread that is not a daemon keeps Python from ending."""

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=time.sleep, args=(3600,)).start()


class LeavesChild(Corridor):
    """A process that outlives its environment; its number is in a file."""

    def __init__(self, file: str) -> None:
        super().__init__()
        left = subprocess.Popen(["sleep", "3600"])
        with open(file, "a", encoding="utf-8") as numbers:
            numbers.write(f"{left.pid}\n")


class SlowToClose(Corridor):
    def close(self) -> None:
        time.sleep(3600)


class HangsInNativeCode(Corridor):
    """Where no signal handler of Python's can run."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(3600)


class RaisesInInit(Corridor):
    def __init__(self, after: int = 0) -> None:
        raise RuntimeError("no licence found")


class RaisesInReset(Corridor):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise RuntimeError("the level is missing")


class RaisesInStep(Corridor):
    def step(self, action: np.int64) -> Any:
        if self._is_time:
            raise RuntimeError("the wheel came off")
        return super().step(action)


class WrongShape(Corridor):
    def _see(self) -> np.ndarray:
        return np.zeros(4 if self._is_time else 3, np.float32)


class WrongShapeVector(CatchVectorEnv):
    """One column too few, where Gymnasium does not check it."""

    def _board(self) -> np.ndarray:
        return super()._board()[:, :, :-1]


class NanObservation(Corridor):
    def _see(self) -> np.ndarray:
        return np.array([0.0, np.nan if self._is_time else 0.0, 0.0], np.float32)


class NanReward(Corridor):
    def _reward(self) -> float:
        return float("nan") if self._is_time else 1.0


class HugeReward(Corridor):
    """Finite, but its square is not, nor is the return of an episode."""

    def _reward(self) -> float:
        return 3e38 if self._is_time else 1.0


class HugeRewardOnce(Corridor):
    """As `HugeReward`, in one step of each environment."""

    def _reward(self) -> float:
        return 3e38 if self._steps == self._after else 1.0


class HangsInStep(Corridor):
    def step(self, action: np.int64) -> Any:
        if self._is_time:
            print("hanging", flush=True)
            time.sleep(3600)
        return super().step(action)


class HangsInInit(Corridor):
    """Of all but the first so many in a process: one is made to learn the spaces, several by an actor."""

    made = 0

    def __init__(self, after: int = 1) -> None:
        super().__init__(after)
        HangsInInit.made += 1
        if HangsInInit.made > after:
            print("hanging", flush=True)
            time.sleep(3600)


class HangingLoss:
    """A loss of the user's that never comes back."""

    def __init__(self, config: Any) -> None: ...

    def __call__(self, distribution: Any, value: Any, batch: Any) -> Any:
        print("hanging", flush=True)
        while True:
            time.sleep(1.0)


class UnequalCatch(CatchVectorEnv):
    """Catch at a pace that differs between processes by a factor of up to a hundred."""

    def step(self, actions: np.ndarray) -> Any:
        time.sleep(0.0005 * 10 ** (os.getpid() % 3))
        return super().step(actions)


def in_the_evaluator() -> bool:
    return "pronk.evaluation.evaluator_process" in sys.modules


class RaisesWhenEvaluated(Corridor):
    def step(self, action: np.int64) -> Any:
        if in_the_evaluator():
            raise RuntimeError("not in front of an audience")
        return super().step(action)


class HangsWhenEvaluated(Corridor):
    def step(self, action: np.int64) -> Any:
        if in_the_evaluator():
            print("hanging", flush=True)
            time.sleep(3600)
        return super().step(action)


class WorthlessWhenEvaluated(Corridor):
    """Returns of 10 for training, of 0 for the evaluator: what a run looks like whose actors report lies."""

    def _reward(self) -> float:
        return 0.0 if in_the_evaluator() else 1.0


class Slow(Corridor):
    """Takes 4 ms for a step and 120 ms for a reset."""

    def reset(self, **kwargs: Any) -> Any:
        time.sleep(0.12)
        return super().reset(**kwargs)

    def step(self, action: np.int64) -> Any:
        time.sleep(0.004)
        return super().step(action)
