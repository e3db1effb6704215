"""PufferLib 3.0's PPO (PuffeRL) on Gymnasium's environments, through its emulation layer.

Source of the settings: config/default.ini of the package, with config/ocean/cartpole.ini (its own CartPole; the one for
Gymnasium's, classic_control.ini, names modules that 3.0 no longer has), atari.ini and mujoco.ini. Its own environments
in C are far faster than Gymnasium's, and another task: they are not installed (NO_OCEAN=1). Tuned to two cores: 64
environments (Pong 16), and batches that fit that many; both ways of stepping them are measured, all in the trainer's
process (`serial`) and in two workers, half of them at a time (`workers`): workers that wait spin, so that on few cores
either may be faster. Pong has the Nature network on 84x84x4
instead of an LSTM on one frame of 105x80.

`Convolutional` of 3.0 lacks the method `forward_eval`, which its trainer calls; the subclass here has it. The dashboard
that it draws four times a second is switched off.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from measuring import Meter, Task, leave, parse, play_cartpole, print_result

WORKERS = 2


def main() -> None:
    task = parse(("serial", "workers"))
    meter = Meter(task)
    sys.argv = sys.argv[:1]  # PufferLib reads the command line, too
    import pufferlib.vector
    from pufferlib import pufferl

    torch.manual_seed(task.seed)
    torch.set_num_threads(2 if task.work == "pong" else 1)
    pufferl.PuffeRL.print_dashboard = lambda *_, **__: None
    make, envs, changes = WORKS[task.work](task)
    backend: Any = pufferlib.vector.Serial
    workers = {}
    if task.algorithm == "workers":
        backend = pufferlib.vector.Multiprocessing
        workers = {"num_workers": WORKERS, "batch_size": envs // 2, "overwork": True}
    vector = pufferlib.vector.make(make, num_envs=envs, backend=backend, seed=task.seed, **workers)
    settings = pufferl.load_config("default")["train"] | {"device": "cpu", "seed": task.seed, "use_rnn": False}
    settings |= {"data_dir": str(task.folder), "env": task.work, "batch_size": "auto"} | changes
    policy = network(task, vector.driver_env)
    trainer = pufferl.PuffeRL(settings, vector, policy)
    while True:
        trainer.evaluate()
        meter.finished(trainer.stats.pop("episode_return", []))
        trainer.train()
        if meter.updated(trainer.global_step) or trainer.global_step >= settings["total_timesteps"]:
            break
    found = meter.result() | {"envs": envs}
    if task.work == "solve":
        found["evaluation"] = play_cartpole(policy_of(policy))
    print_result(found, ["pufferlib", "gymnasium", "torch"])
    vector.close()
    leave()  # its thread that watches the machine would go on


Work = tuple[Callable[..., Any], int, dict[str, Any]]


def cartpole(task: Task) -> Work:
    # One minibatch per rollout is its default; here that is environments x horizon.
    changes = {"gamma": 0.95, "learning_rate": 0.05, "minibatch_size": 64 * task.envs}
    return make_cartpole, task.envs, changes | {"total_timesteps": 10**9}


def solve(task: Task) -> Work:
    changes = {"gamma": 0.95, "learning_rate": 0.05, "minibatch_size": 1024}
    return make_cartpole, 64, changes | {"total_timesteps": 500_000}  # as in classic_control.ini


def pong(task: Task) -> Work:
    return make_pong, 16, {"batch_size": 2048, "minibatch_size": 2048, "anneal_lr": False}


def halfcheetah(task: Task) -> Work:
    rates = {"learning_rate": 3e-4, "gamma": 0.99, "gae_lambda": 0.95, "update_epochs": 10, "ent_coef": 0.0}
    losses = {"clip_coef": 0.2, "vf_coef": 0.5, "vf_clip_coef": 0.2, "max_grad_norm": 0.5, "use_rnn": True}
    sizes = {"batch_size": 32768, "minibatch_size": 4096, "total_timesteps": 5_000_000}
    return make_halfcheetah, 64, rates | losses | sizes


WORKS = {"cartpole": cartpole, "solve": solve, "pong": pong, "halfcheetah": halfcheetah}


def make_cartpole(buf: Any = None, seed: int = 0) -> Any:
    return emulated(gymnasium.make("CartPole-v1"), buf, seed)


def make_pong(buf: Any = None, seed: int = 0) -> Any:
    import ale_py  # noqa: F401  (registers the games)

    game = gymnasium.make("PongNoFrameskip-v4")
    game = gymnasium.wrappers.AtariPreprocessing(game, terminal_on_life_loss=True)  # 84x84, grey, every fourth frame
    return emulated(AsArray(gymnasium.wrappers.FrameStack(game, 4)), buf, seed)


def make_halfcheetah(buf: Any = None, seed: int = 0) -> Any:
    import pufferlib

    env = pufferlib.EpisodeStats(pufferlib.ClipAction(gymnasium.make("HalfCheetah-v4")))
    env = gymnasium.wrappers.NormalizeObservation(env)
    env = gymnasium.wrappers.TransformObservation(env, partial(np.clip, a_min=-10, a_max=10))
    env = gymnasium.wrappers.NormalizeReward(env, gamma=0.99)
    env = gymnasium.wrappers.TransformReward(env, partial(np.clip, a_min=-10, a_max=10))
    return emulated(env, buf, seed, counted=True)


class AsArray(gymnasium.ObservationWrapper):
    """Frames of a stack as one array."""

    def observation(self, observation: Any) -> np.ndarray:
        return np.asarray(observation)


def emulated(env: Any, buf: Any, seed: int, counted: bool = False) -> Any:
    import pufferlib
    import pufferlib.emulation

    env = env if counted else pufferlib.EpisodeStats(env)
    return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)


def network(task: Task, env: Any) -> Any:
    import pufferlib.models

    if task.work == "pong":

        class Nature(pufferlib.models.Convolutional):
            """The Nature network with the method that the trainer calls."""

            def forward_eval(self, observations: Any, state: Any = None) -> Any:
                return self.forward(observations, state)

        return Nature(env, framestack=4, flat_size=64 * 7 * 7)
    if task.work == "halfcheetah":
        return pufferlib.models.LSTMWrapper(env, pufferlib.models.Default(env))
    return pufferlib.models.Default(env, hidden_size=64)


def policy_of(policy: Any) -> Any:
    @torch.no_grad()
    def act(observation: np.ndarray, deterministic: bool) -> np.ndarray:
        logits, _ = policy.forward_eval(torch.as_tensor(observation))
        if deterministic:
            return logits.argmax(-1).numpy()
        return torch.distributions.Categorical(logits=logits).sample().numpy()

    return act


if __name__ == "__main__":
    main()
