"""Records whole episodes of a trained policy as a dataset that other programs read.

The dataset is in the environment's own units: observations after `env.wrappers`, as the agent saw them, and actions as
`env.step` takes them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pronk.config.errors import nearest
from pronk.config.named import import_extra
from pronk.types import UserError

if TYPE_CHECKING:
    from pronk.config import ResolvedConfig

FORMATS = ("minari",)
FOLDER_VARIABLE = "MINARI_DATASETS_PATH"
DATASET_NAME = re.compile(r"(?:[\w-]+/)*[\w-]+-v\d+")


class Recorded(NamedTuple):
    """The dataset that was written."""

    name: str
    folder: Path
    returns: list[float]
    steps: int


def record(
    run: str | Path,
    to: str = "minari",
    *,
    episodes: int = 100,
    name: str | None = None,
    folder: str | Path | None = None,
    deterministic: bool = False,
    best: bool = False,
    seed: int = 1,
    trust: bool = False,
) -> Recorded:
    """Play whole episodes with a run's policy and write them as a Minari dataset.

        recorded = record("last", episodes=50)
        dataset = minari.load_dataset(recorded.name)

    Args:
        run: its directory, its name under runs/, or `last`.
        to: the format; `minari` is the only one.
        episodes: how many.
        name: of the dataset, such as `cartpole/expert-v0`; by default `pronk/ENVIRONMENT-vN`, with N unused so far.
        folder: where datasets are kept, instead of where Minari keeps them (MINARI_DATASETS_PATH).
        deterministic: take the most likely action instead of sampling.
        best: the best checkpoint instead of the newest.
        seed: of the policy and of the first episode; later ones continue its random stream.
        trust: import and call what the run names, even if this account has not trained with it.
    """
    if to not in FORMATS:
        raise UserError(f"no format {to!r}{nearest(to, FORMATS)}; episodes are recorded as {', '.join(FORMATS)}")
    if episodes < 1 or seed < 0:
        raise UserError(f"episodes must be at least 1 and seed at least 0, got {episodes} and {seed}")
    if name is not None and not DATASET_NAME.fullmatch(name):
        raise UserError(f"{name!r} is no name of a dataset: expected letters and a version, such as cartpole/expert-v0")
    for package in ("minari", "h5py"):
        import_extra(package, "recording for Minari", "minari")
    with datasets_in(folder):
        return _record(run, episodes, name, deterministic, best, seed, trust)


@contextlib.contextmanager
def datasets_in(folder: str | Path | None) -> Iterator[None]:
    """Let Minari keep its datasets in this folder while the block lasts; Minari has no argument for it."""
    before = os.environ.get(FOLDER_VARIABLE)
    if folder is not None:
        os.environ[FOLDER_VARIABLE] = str(Path(folder).expanduser().resolve())
    try:
        yield
    finally:
        os.environ.pop(FOLDER_VARIABLE, None)
        if before is not None:
            os.environ[FOLDER_VARIABLE] = before


def _record(
    run: str | Path, episodes: int, name: str | None, deterministic: bool, best: bool, seed: int, trust: bool
) -> Recorded:
    from minari.storage import get_dataset_path

    from pronk.evaluation.playing import checkpoint_of, config_to_play
    from pronk.evaluation.trained_policy import TrainedPolicy
    from pronk.processes.failures import user_code
    from pronk.runs.directory import find_run

    state = checkpoint_of(find_run(str(run)), best)
    config = config_to_play(state, run, trust)
    chosen = name or unused_name(config.env.label)
    if get_dataset_path(chosen).exists():
        raise UserError(f"there is a dataset {chosen} already, in {get_dataset_path(chosen)}; choose another name")
    with user_code("the environment"):
        env = single_env(config)
    try:
        policy = TrainedPolicy(config, state, deterministic, seed)
        with user_code("the environment"):
            played = [episode(env, policy, number, seed) for number in range(episodes)]
        write(chosen, env, played, str(config.loss.name))
    finally:
        env.close()
    returns = [float(sum(one["rewards"])) for one in played]
    return Recorded(chosen, get_dataset_path(chosen), returns, sum(len(one["rewards"]) for one in played))


def single_env(config: ResolvedConfig) -> Any:
    """Make one environment with Gymnasium's API, wrapped as the agent's were."""
    from pronk.envs.base import maker_of_kind, played_as
    from pronk.envs.gymnasium_ids import maker_of, vector_creator

    settings = config.env
    if settings.tasks:
        raise UserError(
            "a run with several tasks (env.tasks) cannot be recorded: a dataset of Minari has one environment"
        )
    played = played_as(settings)
    if maker_of_kind(played.id) or vector_creator(played.model_copy(update={"vectorization": "sync"})):
        raise UserError(f"{settings.id} cannot be recorded: it has no single environment with Gymnasium's API")
    return maker_of(played)()


def episode(env: Any, policy: Any, number: int, seed: int) -> dict[str, Any]:
    """Play one episode: T+1 observations, and T of the rest. Only the first reset takes the seed."""
    policy.reset()
    observation, _ = env.reset(seed=seed) if number == 0 else env.reset()
    seen, actions = [deepcopy(observation)], list[Any]()  # copies: an environment may fill the same arrays again
    rewards, ends = list[float](), list[tuple[bool, bool]]()
    while not ends or not any(ends[-1]):
        action = policy.act(seen[-1], rewards[-1] if rewards else 0.0)
        observation, reward, terminated, truncated, _ = env.step(action)
        seen.append(deepcopy(observation))
        actions.append(deepcopy(action))
        rewards.append(float(reward))
        ends.append((bool(terminated), bool(truncated)))
    terminations, truncations = (list(kind) for kind in zip(*ends, strict=True))
    return {
        "id": number,
        "seed": seed if number == 0 else None,
        "observations": columns(seen),
        "actions": columns(actions),
        "rewards": rewards,
        "terminations": terminations,
        "truncations": truncations,
    }


def columns(values: list[Any]) -> Any:
    """Return a list of Dicts or Tuples as a Dict or Tuple of lists, which is Minari's form."""
    first = values[0]
    if isinstance(first, dict):
        return {key: columns([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(columns([value[index] for value in values]) for index in range(len(first)))
    return values


def unused_name(environment: str) -> str:
    """Return `pronk/ENVIRONMENT-vN` with the lowest N that is free."""
    from minari.storage import get_dataset_path

    stem = re.sub(r"-v\d+$", "", environment)
    stem = re.sub(r"[^\w]+", "-", stem).strip("-").lower() or "episodes"
    return next(name for n in itertools.count() if not get_dataset_path(name := f"pronk/{stem}-v{n}").exists())


def write(name: str, env: Any, played: list[dict[str, Any]], loss: str) -> None:
    """Write the episodes in Minari's format."""
    import minari
    from minari.data_collector import EpisodeBuffer

    from pronk import __version__

    spaces = {"action_space": env.action_space, "observation_space": env.observation_space}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there is no author, e-mail address or link
        minari.create_dataset_from_buffers(
            name,
            [EpisodeBuffer(**one) for one in played],
            env=env.spec,
            algorithm_name=f"IMPALA ({loss}), Pronk {__version__}",
            description="Episodes of a policy that was trained with Pronk.",
            **spaces,
        )
