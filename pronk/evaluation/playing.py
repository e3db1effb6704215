"""Plays whole episodes with given parameters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from pronk.config import EnvConfig, ResolvedConfig, recorded, resolve
from pronk.config.loading import address_of
from pronk.config.resolved import environments_for, evaluation_envs
from pronk.envs import VectorEnv, make_env
from pronk.envs.base import games_of
from pronk.evaluation.atari_scores import human_normalised, human_normalised_summary
from pronk.networks import Network, make_network
from pronk.policies import Policy
from pronk.policies.torch_policy import TorchPolicy
from pronk.processes.failures import user_code
from pronk.runs.checkpoint import DamagedCheckpoint, checked_content, load_checkpoint
from pronk.runs.directory import RunDirectory, find_run
from pronk.runs.trust import code_to_play, require_known
from pronk.seeding import evaluation_seeds
from pronk.types import Array, EnvSpec, UserError


class Evaluation(NamedTuple):
    """Raw returns and lengths of whole episodes."""

    returns: list[float]
    lengths: list[int]
    game: str | None = None  # of Atari
    tasks: Mapping[str, Evaluation] = MappingProxyType({})  # by name, if there are several

    def summary(self) -> dict[str, Any]:
        """Mean, standard deviation, and the 95% interval of the mean (normal approximation).

        With several tasks, means are over the tasks, each with the same weight; `std` is that of episodes within their
        task; and `tasks` has the summary of each.
        """
        each = {name: task.summary() for name, task in self.tasks.items()}
        count = len(self.returns)
        mean, variance, error, length = self._moments()
        half = 1.96 * math.sqrt(error)
        return {
            "episodes": count,
            "mean": mean,
            "std": math.sqrt(variance),
            "interval": [mean - half, mean + half],
            "min": min(self.returns),
            "max": max(self.returns),
            "mean_length": length,
            **self._human_normalised(mean),
            **({"tasks": each} if each else {}),
        }

    def _moments(self) -> tuple[float, float, float, float]:
        """Return mean, variance of an episode, squared error of the mean, and mean length."""
        if self.tasks:
            table = np.array([task._moments() for task in self.tasks.values()])
            mean, variance, error, length = table.mean(axis=0).tolist()
            return mean, variance, error / len(table), length
        count = len(self.returns)
        variance = float(np.var(self.returns, ddof=1)) if count > 1 else 0.0
        return float(np.mean(self.returns)), variance, variance / count, float(np.mean(self.lengths))

    def _human_normalised(self, mean: float) -> dict[str, float]:
        if self.tasks:
            means = [task._moments()[0] for task in self.tasks.values()]
            return human_normalised_summary([task.game for task in self.tasks.values()], means)
        value = human_normalised(self.game, mean) if self.game else None
        return {} if value is None else {"human_normalised": value}


OF_TASKS = ("mean", "std", "episodes", "human_normalised")  # what a line of eval.jsonl has of each task


def flat(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary in plain numbers, as in eval.jsonl: those of a task are called `mean/TASK` and so on."""
    numbers = {name: value for name, value in summary.items() if name not in ("interval", "tasks")}
    tasks = summary.get("tasks", {})
    return numbers | {f"{name}/{task}": part[name] for task, part in tasks.items() for name in OF_TASKS if name in part}


def evaluate(
    run: str | Path,
    episodes: int = 100,
    *,
    deterministic: bool = False,
    best: bool = False,
    seed: int = 1,
    task: str | None = None,
    env: Callable[..., Any] | None = None,
    trust: bool = False,
) -> Evaluation:
    """Play whole episodes with a run's policy, and return their raw returns and lengths.

        played = pronk.evaluate("last", 100)
        print(played.summary()["mean"], played.returns)

    Args:
        run: its directory, its name under runs/, or `last`.
        episodes: how many, of each task.
        deterministic: take the most likely action instead of sampling.
        best: the best checkpoint instead of the newest.
        seed: of the episodes.
        task: the only one to play, of a run with several.
        env: the class or function that makes the environment, if the run's own cannot be imported here, as one from
            another notebook.
        trust: import and call what the run names, even if this account has not trained with it. Such a run is refused
            otherwise (`UserError`).
    """
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, got {episodes}")
    if seed < 0:
        raise UserError(f"seed must be at least 0, got {seed}")
    state = checkpoint_of(find_run(str(run)), best)
    config = config_to_play(state, run, trust, env)
    torch.set_num_threads(1)
    count = how_many_envs(config, episodes, 1 if task else len(config.env.each_task))
    policy_seed, env_seeds = evaluation_seeds(seed, count)
    with user_code("the environment"):
        vector = make_env(config, count, task=task)
    try:
        policy = restored_policy(config, vector.spec, state, vector.count, policy_seed, deterministic)
        with user_code("the environment"):
            return with_games(play_episodes(vector, policy, episodes, env_seeds), config.env, task)
    finally:
        vector.close()


def how_many_envs(config: ResolvedConfig, episodes: int, tasks: int = 1) -> int:
    """Return how many environments to play with: one per episode, up to a limit; an actor's number if processes."""
    return environments_for(episodes, tasks, evaluation_envs(config.env, config.actors.envs))


def play_episodes(
    env: VectorEnv,
    policy: Policy,
    episodes: int,
    seeds: list[int],
    at_every_step: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Play so many episodes of each task that the environments have.

    Each environment plays its share: taking the first to finish instead would favour short episodes.
    """
    played = np.unique(env.task).tolist()
    quota = sum((shares(env.task == task, episodes) for task in played), np.zeros(env.count, np.int64))
    found: dict[int, Evaluation] = {task: Evaluation([], []) for task in played}
    step = env.reset(seeds)
    while quota.any():
        action, _ = policy.act(step.observation, step.first)
        step = env.step(action)
        counted = ~np.isnan(step.episode_return) & (quota > 0)
        for column in np.flatnonzero(counted):
            found[int(env.task[column])].returns.append(float(step.episode_return[column]))
            found[int(env.task[column])].lengths.append(int(step.episode_length[column]))
        quota[counted] -= 1
        at_every_step()
    if len(played) == 1:
        return found[played[0]]
    return together({env.spec.tasks[task]: evaluation for task, evaluation in found.items()})


def shares(chosen: Array, episodes: int) -> Array:
    """Divide episodes evenly over the chosen [N] environments: [N]."""
    position = np.cumsum(chosen) - 1
    count = int(chosen.sum())
    return np.where(chosen, episodes // count + (position < episodes % count), 0)


def together(tasks: dict[str, Evaluation]) -> Evaluation:
    """Join the evaluations of several tasks."""
    returns = [value for task in tasks.values() for value in task.returns]
    lengths = [length for task in tasks.values() for length in task.lengths]
    return Evaluation(returns, lengths, None, tasks)


def with_games(evaluation: Evaluation, config: EnvConfig, task: str | None = None) -> Evaluation:
    """Add the Atari game of each task, whose human scores are known."""
    games = dict(zip(config.task_names or (None,), games_of(config), strict=True))
    named = {name: one._replace(game=games[name]) for name, one in evaluation.tasks.items()}
    only = next(iter(games)) if len(games) == 1 else task
    return evaluation._replace(game=None if named else games[only], tasks=named)


def config_to_play(
    state: dict[str, Any], run: str | Path, trust: bool, env: Callable[..., Any] | None = None
) -> ResolvedConfig:
    """Return the configuration in a checkpoint, with another environment if one is given.

    Raises `UserError` if it names code that this account has not trained with, and its author is not trusted.
    """
    config = recorded(state["config"])
    given = address_of(env) if env is not None else None
    if given is not None:
        config = config.replace({"env.id": given})
    require_known([code for code in code_to_play(config) if code.address != given], str(run), trust)
    return resolve(config)


def checkpoint_of(run: RunDirectory, best: bool) -> dict[str, Any]:
    """Return the best or the newest readable checkpoint."""
    if not best:
        state, problems = run.checkpoints.restore()
        for problem in problems.values():
            warnings.warn(f"{problem}; using an older one", DamagedCheckpoint, stacklevel=2)
        return state
    path = run.checkpoints.best
    if not path.exists():
        raise UserError(f"{run.path} has no best checkpoint: no episode had ended when the last one was written")
    return load_checkpoint(path)


def restored_policy(
    config: ResolvedConfig, spec: EnvSpec, state: dict[str, Any], count: int, seed: int, deterministic: bool
) -> TorchPolicy:
    """A policy with a checkpoint's weights."""
    return TorchPolicy(restored_network(config, spec, state), count, seed, deterministic)


def restored_network(config: ResolvedConfig, spec: EnvSpec, state: dict[str, Any]) -> Network:
    """A network with a checkpoint's weights."""
    network = make_network(spec, config.network)
    with checked_content("the network or the environment any more"):
        network.load_state_dict(state["learner"]["network"])
    if broken := [name for name, tensor in network.state_dict().items() if not tensor.isfinite().all()]:
        raise UserError(f"the weights of this checkpoint are not finite ({', '.join(broken)}): it cannot play")
    return network
