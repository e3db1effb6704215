"""One run of Stable-Baselines3 at its defaults, for `against_sb3.py`. Runs in a virtual environment that has SB3.

Reads nothing of Pronk. Prints one JSON object: steps trained, and the evaluations of the last policy. `random` trains
nothing and plays random actions.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

ENVS = 8
EVALUATION_SEED = 10_000  # added to the run's seed, so that no evaluated episode was trained on
ALGORITHMS = {"ppo": PPO, "a2c": A2C}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("algorithm", choices=[*ALGORITHMS, "random"])
    parser.add_argument("env")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--core", type=int, help="run on this core, with one thread")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
        torch.set_num_threads(1)
    env = make(options.env, options.seed)
    model: Any
    if options.algorithm == "random":
        set_random_seed(options.seed)
        model = RandomPlay(env)
    else:
        model = ALGORITHMS[options.algorithm](policy_for(env), env, seed=options.seed)
        model.learn(total_timesteps=10**12, callback=TimeLimit(options.seconds))
    result: dict[str, Any] = {"steps": getattr(model, "num_timesteps", 0), "policy": policy_for(env)}
    for name, deterministic in [("sampled", False), ("deterministic", True)]:
        evaluated = make(options.env, options.seed + EVALUATION_SEED)
        returns, _ = evaluate_policy(
            model, evaluated, options.episodes, deterministic=deterministic, return_episode_rewards=True
        )
        evaluated.close()
        result[name] = {
            "mean": float(np.mean(returns)),
            "std": float(np.std(returns, ddof=1)),
            "episodes": len(returns),
        }
        if options.algorithm == "random":
            break
    result["versions"] = {name: importlib.metadata.version(name) for name in ("stable-baselines3", "gymnasium")}
    print(json.dumps(result))


class TimeLimit(BaseCallback):
    """Ends training after so many seconds, counted from the first step."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def _on_training_start(self) -> None:
        self._end = time.monotonic() + self._seconds

    def _on_step(self) -> bool:
        return time.monotonic() < self._end


class RandomPlay:
    """Plays every action with equal probability."""

    def __init__(self, env: VecEnv) -> None:
        self._space = env.action_space

    def predict(self, observation: Any, state: Any = None, **_: Any) -> tuple[np.ndarray, Any]:
        return np.stack([self._space.sample() for _ in range(ENVS)]), state


def make(name: str, seed: int, envs: int = ENVS, vec_env: Callable[..., VecEnv] | None = None) -> VecEnv:
    """Make environments with the wrappers that SB3's users give them."""
    if "NoFrameskip" in name:
        import ale_py

        gym.register_envs(ale_py)
        return VecFrameStack(make_atari_env(name, envs, seed, vec_env_cls=vec_env), 4)
    wrapper = None
    if name.startswith(("MiniGrid-", "BabyAI-")):  # as in RL Zoo: image and mission in one vector
        import minigrid.wrappers

        wrapper = minigrid.wrappers.FlatObsWrapper
    if name.startswith("MinAtar/") and name not in gym.registry:
        import minatar.gym

        minatar.gym.register_envs()
    return make_vec_env(name, envs, seed, wrapper_class=wrapper, vec_env_cls=vec_env)


def policy_for(env: VecEnv) -> str:
    """Choose SB3's policy by the observation: Dict, image large enough for its CNN, or anything else."""
    space = env.observation_space
    if isinstance(space, gym.spaces.Dict):
        return "MultiInputPolicy"
    is_image = space.shape is not None and len(space.shape) == 3 and min(sorted(space.shape)[1:]) >= 36
    return "CnnPolicy" if is_image and space.dtype == np.uint8 else "MlpPolicy"


if __name__ == "__main__":
    main()
