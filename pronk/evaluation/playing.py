"""Plays whole episodes with given parameters, and loads a trained policy for use elsewhere."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from pronk.config import EnvConfig, ResolvedConfig, recorded, resolve
from pronk.config.named import import_extra
from pronk.config.resolved import environments_for, evaluation_envs
from pronk.envs import VectorEnv, make_env
from pronk.envs.base import games_of
from pronk.envs.last_inputs import LastInputs
from pronk.evaluation.atari_scores import human_normalised, human_normalised_summary
from pronk.networks import Network, make_network
from pronk.policies import Policy
from pronk.policies.torch_policy import TorchPolicy
from pronk.processes.failures import user_code
from pronk.runs.checkpoint import DamagedCheckpoint, load_checkpoint
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
    trust: bool = False,
) -> Evaluation:
    """Play `episodes` whole episodes of each task with a run's newest (or best) checkpoint; of one `task`, if named.

    A run that names code which this account has not trained with is refused (`UserError`), unless `trust` is true.
    """
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, got {episodes}")
    if seed < 0:
        raise UserError(f"seed must be at least 0, got {seed}")
    state = checkpoint_of(find_run(str(run)), best)
    config = config_to_play(state, run, trust)
    torch.set_num_threads(1)
    count = how_many_envs(config, episodes, 1 if task else len(config.env.each_task))
    policy_seed, env_seeds = evaluation_seeds(seed, count)
    with user_code("the environment"):
        env = make_env(config, count, task=task)
    try:
        policy = restored_policy(config, env.spec, state, env.count, policy_seed, deterministic)
        with user_code("the environment"):
            return with_games(play_episodes(env, policy, episodes, env_seeds), config.env, task)
    finally:
        env.close()


def how_many_envs(config: ResolvedConfig, episodes: int, tasks: int = 1) -> int:
    """One for each episode, within reason; where each is a process, no more than an actor has."""
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


class Player:
    """A trained policy for one environment: raw observation in, the environment's own action out."""

    def __init__(
        self, config: ResolvedConfig, state: dict[str, Any], deterministic: bool, seed: int, task: str | None = None
    ) -> None:
        self._env = make_env(config.replace({"env.vectorization": "auto"}), 1, task=task)
        self._env.close()  # only its translations between spaces and arrays are used
        self._policy = restored_policy(config, self._env.spec, state, 1, seed, deterministic)
        self.reset()

    def reset(self) -> None:
        """The next observation opens an episode."""
        self._first = np.array([True])
        action = self._env.spec.action.array
        self._action = np.zeros((1, *action.shape), action.dtype)

    def act(self, observation: Any, reward: float = 0.0) -> Any:
        """The action for an observation. `reward`: of the last action, for networks that want to see it."""
        seen = self._env.encode(with_batch_axis(observation))
        if isinstance(self._env, LastInputs):
            seen = self._env.extend(seen, self._first, self._action, np.array([reward]))
        self._action, _ = self._policy.act(seen, self._first)
        self._first = np.array([False])
        return self._env.decode(self._action)[0]


def load(
    run: str | Path,
    *,
    deterministic: bool = False,
    best: bool = False,
    seed: int = 1,
    task: str | None = None,
    trust: bool = False,
) -> Player:
    """The policy of a run, or of a .safetensors file that `pronk export` wrote, ready to act.

    `task` is the one to play, of a run with several; by default the first. A run that names code which this account has
    not trained with is refused (`UserError`), unless `trust` is true.
    """
    is_file = str(run).endswith(".safetensors")
    state = read_safetensors(Path(run)) if is_file else checkpoint_of(find_run(str(run)), best)
    return Player(config_to_play(state, run, trust), state, deterministic, seed, task)


def config_to_play(state: dict[str, Any], run: str | Path, trust: bool) -> ResolvedConfig:
    """Return the configuration in a checkpoint. Raises `UserError` if it names code of somebody who is not trusted."""
    config = recorded(state["config"])
    require_known(code_to_play(config), str(run), trust)
    return resolve(config)


def read_safetensors(path: Path) -> dict[str, Any]:
    """The configuration and weights of an exported policy, in the form of a checkpoint."""
    import_extra("safetensors", f"loading {path}", "export")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["pronk"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return {"config": facts["config"], "learner": {"network": weights}}
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    except (KeyError, ValueError):
        raise UserError(f"{path} was not written by `pronk export`: it does not say which network it is for") from None


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
    try:
        network.load_state_dict(state["learner"]["network"])
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"the checkpoint does not fit the network or the environment any more: {reason}") from None
    if broken := [name for name, tensor in network.state_dict().items() if not tensor.isfinite().all()]:
        raise UserError(f"the weights of this checkpoint are not finite ({', '.join(broken)}): it cannot play")
    return network


def with_batch_axis(observation: Any) -> Any:
    """One raw observation as a batch of one."""
    if isinstance(observation, tuple):
        return tuple(with_batch_axis(part) for part in observation)
    if isinstance(observation, dict):
        return {key: with_batch_axis(part) for key, part in observation.items()}
    return np.asarray(observation)[None]
