"""CleanRL's PPO, run from a checkout: its scripts as they are, with the arguments that they recommend themselves.

Source of the settings: the defaults of ppo.py, ppo_atari.py and ppo_continuous_action.py, which are those of
https://docs.cleanrl.dev/rl-algorithms/ppo/. Only the number of environments differs, and only for throughput on
CartPole. The scripts report to a SummaryWriter; this driver gives them one that feeds the clock instead of a file, and
ends them from inside it.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np
import torch
import torch.utils.tensorboard
from measuring import Meter, Task, parse, play_cartpole, report

SCRIPTS = {
    "cartpole": "ppo.py",
    "solve": "ppo.py",
    "pong": "ppo_atari.py",
    "halfcheetah": "ppo_continuous_action.py",
}


def main() -> None:
    task = parse()
    if task.checkout is None:
        raise SystemExit("--checkout PATH is required: a checkout of https://github.com/vwxyzjn/cleanrl")
    if task.work == "pong":
        import ale_py  # noqa: F401  (registers the games)
    torch.set_num_threads(2 if task.work == "pong" else 1)
    meter = Meter(task)
    script = task.checkout / "cleanrl" / SCRIPTS[task.work]
    torch.utils.tensorboard.SummaryWriter = lambda *_: Writer(meter)  # type: ignore
    sys.path.insert(0, str(task.checkout))  # for cleanrl_utils
    sys.argv = [str(script), "--seed", str(task.seed), "--no-cuda", *arguments(task)]
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}
    with contextlib.suppress(MeasuredEnoughError):
        exec(compile(script.read_text(), str(script), "exec"), names)
    more: dict[str, Any] = {"envs": names["args"].num_envs}
    if task.work == "solve":
        more["evaluation"] = play_cartpole(policy_of(names["agent"]))
    report(meter, ["gymnasium", "torch"], **more)


def arguments(task: Task) -> list[str]:
    if task.work == "cartpole":
        return ["--total-timesteps", "1000000000", "--num-envs", str(task.envs)]
    if task.work == "pong":
        return ["--env-id", "PongNoFrameskip-v4"]
    return ["--env-id", "HalfCheetah-v4"] if task.work == "halfcheetah" else []


class MeasuredEnoughError(Exception):
    """Raised inside the script to end it."""


class Writer:
    """What the script writes its figures to. It writes the steps per second after each update."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        if name == "charts/episodic_return":
            self._meter.finished([float(np.asarray(value).item())])
        elif name == "charts/SPS" and self._meter.updated(step):
            raise MeasuredEnoughError

    def add_text(self, *_: Any) -> None:
        pass

    def close(self) -> None:
        pass


def policy_of(agent: Any) -> Any:
    @torch.no_grad()
    def act(observation: np.ndarray, deterministic: bool) -> np.ndarray:
        seen = torch.as_tensor(observation)
        if deterministic:
            return agent.actor(seen).argmax(-1).numpy()
        return agent.get_action_and_value(seen)[0].numpy()

    return act


if __name__ == "__main__":
    main()
