"""Stable-Baselines3's A2C or PPO, with the settings of RL Baselines3 Zoo for each task.

Source: hyperparams/a2c.yml and ppo.yml of https://github.com/DLR-RM/rl-baselines3-zoo (its HalfCheetah-v4 is v5 here).
Tuned to two cores: one thread for small networks, two for Pong; Pong's environments in processes of their own; for
throughput on CartPole more environments than the Zoo's 8.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import Meter, Task, parse, play_cartpole, report
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize
from torch import nn

sys.path.append(str(Path(__file__).parents[2]))
from sb3_peer import make

ALGORITHMS = {"a2c": A2C, "ppo": PPO}
ENVIRONMENTS = {
    "cartpole": "CartPole-v1",
    "solve": "CartPole-v1",
    "pong": "PongNoFrameskip-v4",
    "halfcheetah": "HalfCheetah-v5",
}
ENDLESS = 10**9
# Forked, since SB3's workers do not import ale_py, which knows Pong.
IN_PROCESSES = partial(SubprocVecEnv, start_method="fork")


class Settings(dict[str, Any]):
    """Arguments of the algorithm, with the number of environments and of steps."""

    def __init__(self, envs: int, steps: int = ENDLESS, normalize: bool = False, **arguments: Any) -> None:
        super().__init__(arguments)
        self.envs, self.steps, self.normalize = envs, steps, normalize


def main() -> None:
    task = parse(ALGORITHMS)
    meter = Meter(task)
    is_pong = task.work == "pong"
    torch.set_num_threads(2 if is_pong else 1)
    settings = a2c(task) if task.algorithm == "a2c" else ppo(task)
    env = make(ENVIRONMENTS[task.work], task.seed, settings.envs, IN_PROCESSES if is_pong else None)
    if settings.normalize:
        env = VecNormalize(env, gamma=settings.get("gamma", 0.99))
    model = ALGORITHMS[task.algorithm](
        "CnnPolicy" if is_pong else "MlpPolicy", env, seed=task.seed, device="cpu", **settings
    )
    model.learn(total_timesteps=settings.steps, callback=Watch(meter))
    more: dict[str, Any] = {"envs": settings.envs}
    if task.work == "solve":
        more["evaluation"] = play_cartpole(lambda seen, fixed: model.predict(seen, deterministic=fixed)[0])
    report(meter, ["stable-baselines3", "gymnasium", "torch"], **more)
    env.close()


def a2c(task: Task) -> Settings:
    if task.work == "cartpole":
        return Settings(task.envs, ent_coef=0.0)
    if task.work == "solve":
        return Settings(8, 500_000, ent_coef=0.0)
    if task.work == "pong":
        like_tensorflow = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}}
        return Settings(16, ent_coef=0.01, vf_coef=0.25, policy_kwargs=like_tensorflow)
    return Settings(1, 1_000_000, normalize=True)


def ppo(task: Task) -> Settings:
    cartpole: dict[str, Any] = {"n_steps": 32, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0}
    if task.work == "cartpole":  # one batch per rollout, as in the Zoo, but larger
        return Settings(task.envs, batch_size=32 * task.envs, learning_rate=0.001, **cartpole)
    if task.work == "solve":
        schedules = {"learning_rate": linear(0.001), "clip_range": linear(0.2)}
        return Settings(8, 100_000, batch_size=256, **schedules, **cartpole)
    if task.work == "pong":
        schedules = {"learning_rate": linear(2.5e-4), "clip_range": linear(0.1)}
        return Settings(8, 10_000_000, n_steps=128, n_epochs=4, batch_size=256, ent_coef=0.01, **schedules)
    network = {"log_std_init": -2, "ortho_init": False, "activation_fn": nn.ReLU, "net_arch": [256, 256]}
    rates = {"learning_rate": 2.0633e-05, "ent_coef": 0.000401762, "clip_range": 0.1, "vf_coef": 0.58096}
    horizon = {"gamma": 0.98, "gae_lambda": 0.92, "n_steps": 512, "batch_size": 64, "n_epochs": 20}
    return Settings(1, 1_000_000, normalize=True, max_grad_norm=0.8, policy_kwargs=network, **rates, **horizon)


def linear(start: float) -> Callable[[float], float]:
    return lambda remaining: remaining * start


class Watch(BaseCallback):
    """Tells the meter about episodes and updates: a rollout that starts has the update of the last one behind it."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter, self._enough = meter, False

    def _on_rollout_start(self) -> None:
        self._enough = self._meter.updated(self.num_timesteps)

    def _on_step(self) -> bool:
        self._meter.finished(info["episode"]["r"] for info in self.locals["infos"] if "episode" in info)
        return not self._enough


if __name__ == "__main__":
    main()
