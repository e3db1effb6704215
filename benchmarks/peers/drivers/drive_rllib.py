"""RLlib's IMPALA or APPO (new API stack), with the settings of its own examples.

Source: cartpole_impala.py, cartpole_appo.py, pong_impala.py, pong_appo.py and halfcheetah_appo.py below
rllib/examples/algorithms (before: rllib/tuned_examples) of https://github.com/ray-project/ray; IMPALA has no example
for HalfCheetah and gets APPO's batch size and number of environments. Tuned to two cores: two env runners, the learner
in the main process. Pong has the Nature network on 84x84x4 instead of the example's on 64x64x4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from measuring import Meter, Task, parse, play_cartpole, print_result

RUNNERS = 2
ALGORITHMS = ("impala", "appo")
NATURE = [(32, 8, 4, "valid"), (64, 4, 2, "valid"), (64, 3, 1, "valid")]
SHARED = {"vf_share_layers": True}
ENTROPY = {"impala": [[0, 0.02], [3_000_000, 0.0]], "appo": [[0, 0.01], [3_000_000, 0.0]]}


def main() -> None:
    task = parse(ALGORITHMS)
    meter = Meter(task)
    import ray

    ray.init(num_cpus=RUNNERS + 2, include_dashboard=False, log_to_driver=False)
    config, envs = configuration(task)
    algorithm = config.build_algo()
    enough = False
    while not enough:
        result = algorithm.train()
        played = result["env_runners"].get("episode_return_mean")
        if played is not None and np.isfinite(played):
            meter.averaged(float(played))
        enough = meter.updated(trained_steps(result))
    found = meter.result() | {"envs": envs}
    if task.work == "solve":
        found["evaluation"] = play_cartpole(policy_of(algorithm))
    algorithm.stop()
    ray.shutdown()
    print_result(found, ["ray", "gymnasium", "torch"])


def trained_steps(result: dict[str, Any]) -> int:
    """Return the steps trained on, each once: APPO's learner counts a step as often as it goes over it."""
    everything = result.get("learners", {}).get("__all_modules__", {})
    sampled = result["env_runners"].get("num_env_steps_sampled_lifetime", 0)
    return int(min(everything.get("num_env_steps_trained_lifetime", 0), sampled))


def configuration(task: Task) -> tuple[Any, int]:
    """Return the configuration, and how many environments it has."""
    from ray.rllib.algorithms.appo import APPOConfig
    from ray.rllib.algorithms.impala import IMPALAConfig

    config = (APPOConfig if task.algorithm == "appo" else IMPALAConfig)()
    envs = {"cartpole": task.envs, "solve": 32, "pong": 10, "halfcheetah": 64}[task.work]
    window = 20 if task.work == "halfcheetah" else 100
    config = (
        config.env_runners(num_env_runners=RUNNERS, num_envs_per_env_runner=envs // RUNNERS)
        .learners(num_learners=0)
        .reporting(min_time_s_per_iteration=0.5, metrics_num_episodes_for_smoothing=window)
        .debugging(seed=task.seed)
    )
    return {"pong": pong, "halfcheetah": halfcheetah}.get(task.work, cartpole)(config, task.algorithm), envs


def cartpole(config: Any, algorithm: str | None) -> Any:
    config = config.environment("CartPole-v1").rl_module(model_config=SHARED)
    if algorithm == "appo":
        return config.training(circular_buffer_iterations_per_batch=2, vf_loss_coeff=0.05, entropy_coeff=0.0)
    rates = {"lr": 0.0005, "vf_loss_coeff": 0.05, "entropy_coeff": 0.0}
    return config.training(train_batch_size_per_learner=500, grad_clip=40.0, grad_clip_by="global_norm", **rates)


def pong(config: Any, algorithm: str | None) -> Any:
    from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
    from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
    from ray.tune.registry import register_env

    register_env("pong", make_pong)
    network = SHARED | {"conv_filters": NATURE, "conv_activation": "relu", "head_fcnet_hiddens": [512]}
    config = (
        config.environment("pong", clip_rewards=True)
        .env_runners(env_to_module_connector=lambda *_, **__: FrameStackingEnvToModule(num_frames=4))
        .rl_module(model_config=network)
    )
    common = {
        "learner_connector": lambda *_: FrameStackingLearner(num_frames=4),
        "train_batch_size_per_learner": 500,
        "vf_loss_coeff": 1.0,
        "entropy_coeff": ENTROPY[algorithm],
    }
    if algorithm == "appo":
        reuse = {"circular_buffer_num_batches": 4, "circular_buffer_iterations_per_batch": 2}
        return config.training(lr=0.0005, target_network_update_freq=2, broadcast_interval=5, **reuse, **common)
    return config.training(lr=0.0009, grad_clip=30.0, grad_clip_by="global_norm", **common)


def make_pong(settings: Any) -> Any:
    import gymnasium
    from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack

    game = gymnasium.make("ale_py:ALE/Pong-v5", frameskip=1, full_action_space=False, repeat_action_probability=0.0)
    return wrap_atari_for_new_api_stack(game, dim=84, framestack=None)


def halfcheetah(config: Any, algorithm: str | None) -> Any:
    config = config.environment("HalfCheetah-v5").env_runners(rollout_fragment_length=512)
    common = {"train_batch_size_per_learner": 4096, "lr": 0.0005, "gamma": 0.995, "entropy_coeff": 0.0}
    if algorithm == "impala":
        return config.training(vf_loss_coeff=0.5, **common)
    reuse = {"circular_buffer_num_batches": 16, "circular_buffer_iterations_per_batch": 20}
    trust = {"clip_param": 0.4, "use_kl_loss": True, "kl_coeff": 1.0, "kl_target": 0.04, "lambda_": 0.995}
    clipping = {"grad_clip": 0.5, "grad_clip_by": "value", "target_network_update_freq": 2}
    return config.training(vf_loss_coeff=0.5, **reuse, **trust, **clipping, **common)


def policy_of(algorithm: Any) -> Any:
    """Return the learner's network as a policy: the env runners' may be older."""
    module = algorithm.learner_group._learner.module["default_policy"]

    @torch.no_grad()
    def act(observation: np.ndarray, deterministic: bool) -> np.ndarray:
        logits = module.forward_inference({"obs": torch.as_tensor(observation)})["action_dist_inputs"]
        if deterministic:
            return logits.argmax(-1).numpy()
        return torch.distributions.Categorical(logits=logits).sample().numpy()

    return act


if __name__ == "__main__":
    main()
