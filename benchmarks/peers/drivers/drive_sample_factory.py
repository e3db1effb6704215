"""Sample Factory's APPO, with the settings of its own examples.

Source: the command line in sf_examples/train_gym_env.py for CartPole, sf_examples/atari/atari_params.py for Pong and
sf_examples/mujoco/mujoco_params.py for HalfCheetah, all of the installed package. Tuned to two cores: two workers with
as many environments in all as the example has (Pong 8, HalfCheetah 64), and one inference process.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from measuring import Meter, Task, parse, play_cartpole, print_result

WORKERS = 2


def main() -> None:
    from sample_factory.algo.runners.runner import AlgoObserver
    from sample_factory.envs.env_utils import register_env
    from sample_factory.train import make_runner

    task = parse()
    meter = Meter(task)
    register_env("CartPole-v1", make_cartpole)
    register_env("atari_pong", make_pong)
    register_env("mujoco_halfcheetah", make_halfcheetah)
    cfg = configuration(task)

    class Watch(AlgoObserver):
        """Called in the main process after each of the learner's updates."""

        def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
            if not runner.stopped and meter.updated(runner.env_steps.get(0, 0)):
                runner._stop_training()

    cfg, runner = make_runner(cfg)
    runner.register_observer(Watch())
    runner.register_episodic_stats_handler(
        lambda _, message, policy: meter.finished(np.atleast_1d(message["episodic"]["reward"]))
    )
    if runner.init() != 0 or runner.run() != 0:
        raise SystemExit("Sample Factory failed")
    found = meter.result() | {"envs": cfg.num_workers * cfg.num_envs_per_worker}
    if task.work == "solve":
        found["evaluation"] = play_cartpole(trained_policy(cfg))
    print_result(found, ["sample-factory", "gymnasium", "torch"])


def make_cartpole(name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> Any:
    import gymnasium

    return gymnasium.make(name, render_mode=render_mode)


def make_pong(name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> Any:
    import ale_py  # noqa: F401  (registers the games)
    from sf_examples.atari.atari_utils import make_atari_env

    return make_atari_env(name, cfg, env_config, render_mode)


def make_halfcheetah(name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> Any:
    from sf_examples.mujoco.mujoco_utils import make_mujoco_env

    return make_mujoco_env(name, cfg, env_config, render_mode)


def configuration(task: Task) -> Any:
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sf_examples.atari.atari_params import atari_override_defaults
    from sf_examples.mujoco.mujoco_params import mujoco_override_defaults

    env, envs, defaults, more = {
        "cartpole": ("CartPole-v1", task.envs, None, CARTPOLE),
        "solve": ("CartPole-v1", 40, None, CARTPOLE),
        "pong": ("atari_pong", 8, atari_override_defaults, []),
        "halfcheetah": ("mujoco_halfcheetah", 64, mujoco_override_defaults, []),
    }[task.work]
    arguments = [
        *("--algo=APPO", f"--env={env}", "--experiment=peer", f"--train_dir={task.folder}", f"--seed={task.seed}"),
        *("--device=cpu", f"--num_workers={WORKERS}", f"--num_envs_per_worker={envs // WORKERS}"),
        "--summaries_use_frameskip=False",  # so that steps are the agent's, not the emulator's
        *(["--train_for_env_steps=1000000000"] if task.work in ("cartpole", "solve") else []),
        *more,
    ]
    parser, partial = parse_sf_args(argv=arguments)
    if defaults is not None:
        defaults(partial.env, parser)
    return parse_full_cfg(parser, arguments)


CARTPOLE = [
    *("--use_rnn=False", "--recurrence=1", "--with_vtrace=False", "--batch_size=512", "--reward_scale=0.1"),
    *("--policy_workers_per_policy=1", "--save_every_sec=10", "--experiment_summaries_interval=10"),
]


def trained_policy(cfg: Any) -> Any:
    """Load the checkpoint that the run saved when it was stopped."""
    import gymnasium
    from sample_factory.algo.learning.learner import Learner
    from sample_factory.model.actor_critic import create_actor_critic
    from sample_factory.model.model_utils import get_rnn_size

    env = gymnasium.make("CartPole-v1")
    observed = gymnasium.spaces.Dict({"obs": env.observation_space})
    model = create_actor_critic(cfg, observed, env.action_space)
    model.eval()
    paths = Learner.get_checkpoints(Learner.checkpoint_dir(cfg, 0), "checkpoint_*")
    # Not Learner.load_checkpoint: it does not pass weights_only=False, which torch requires for its checkpoints by now.
    model.load_state_dict(torch.load(paths[-1], map_location="cpu", weights_only=False)["model"])
    size = get_rnn_size(cfg)

    @torch.no_grad()
    def act(observation: np.ndarray, deterministic: bool) -> np.ndarray:
        seen = model.normalize_obs({"obs": torch.as_tensor(observation)})
        output = model(seen, torch.zeros(len(observation), size))
        if deterministic:
            return output["action_logits"].argmax(-1).numpy()
        return output["actions"].numpy()

    return act


if __name__ == "__main__":
    sys.exit(main())
