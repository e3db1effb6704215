"""Explains mistakes in the user's environment: one line each, with the fix."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym

from pronk.config import EnvConfig
from pronk.config.errors import nearest
from pronk.types import UserError

# Packages that pip knows by another name than Python.
PIP_NAMES = {
    "Box2D": "gymnasium[box2d]",
    "mujoco": "gymnasium[mujoco]",
    "cv2": "opencv-python",
    "pkg_resources": "setuptools<81",
    "shimmy": "shimmy[dm-control]",
    "pygame": "pygame-ce",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
}
# Packages that come with an extra of Pronk's.
EXTRAS = {
    "Box2D": "box2d",
    "MuJoCo": "mujoco",
    "mujoco": "mujoco",
    "ale_py": "atari",
    "crafter": "crafter",
    "minatar": "minatar",
    "minigrid": "minigrid",
    "minihack": "nethack",
    "nle": "nethack",
    "popgym": "popgym",
    "shimmy": "dm-control",
    "vizdoom": "vizdoom",
}
DRAWN_WITH_PYGAME = tuple(f"gymnasium.envs.{family}." for family in ("box2d", "classic_control", "toy_text"))
OLD_API = (
    "the API of the old gym package; in Gymnasium reset() returns (observation, info) and step() returns (observation, "
    "reward, terminated, truncated, info): update the environment, or wrap it with shimmy (pip install shimmy)"
)


@contextlib.contextmanager
def mistakes_explained(config: EnvConfig, find_creator: Callable[[], Any] = lambda: None) -> Iterator[None]:
    """Turn mistakes of the user into a `UserError`, while the configured environment is imported or made.

    `find_creator` returns the class or function that takes `env.kwargs`. Errors inside the environment's own code pass
    unchanged.
    """
    own_package = config.id.partition(":")[0].partition(".")[0]
    try:
        yield
    except gym.error.DependencyNotInstalled as error:
        if extra := next((EXTRAS[name] for name in EXTRAS if str(error).startswith(name)), None):
            name = str(error).split()[0]
            raise UserError(f"env.id: {config.id} needs the package {name}: pip install 'pronk[{extra}]'") from None
        raise UserError(f"env.id: {config.id} needs a package: {' '.join(str(error).split())}") from None
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing == own_package:
            raise
        if missing == "gym":
            raise UserError(f"env.id: {config.id} imports gym, which is not installed: it has {OLD_API}") from None
        raise UserError(
            f"env.id: {config.id} needs the package {missing}, which is not installed; pip install "
            + (f"'pronk[{EXTRAS[missing]}]'" if missing in EXTRAS else f"'{PIP_NAMES.get(missing, missing)}'")
        ) from None
    except TypeError as error:
        reason = wrong_kwargs(str(error), config, find_creator())
        if reason is None:
            raise
        raise UserError(reason) from None


def wrong_kwargs(message: str, config: EnvConfig, creator: Callable[..., Any] | None) -> str | None:
    """Return what is wrong with `env.kwargs`, if they are the cause of a TypeError with this message."""
    accepted = parameters_of(creator)
    unknown = re.search(r"unexpected keyword argument '(\w+)'", message)
    if unknown and unknown[1] in config.kwargs:
        there_are = f"; it takes {', '.join(accepted)}" if accepted else ""
        return f"env.kwargs: {config.id} takes no {unknown[1]!r}{nearest(unknown[1], accepted)}{there_are}"
    needed = [name for name, required in accepted.items() if required and name not in config.kwargs]
    if re.search(r"missing \d+ required", message) and needed:
        return f"env.kwargs: {config.id} needs {', '.join(needed)}; set {', '.join(f'env.kwargs.{n}' for n in needed)}"
    if "Gym is incompatible with Gymnasium" in message or "must inherit from the gymnasium.Env class" in message:
        return f"env.id: {config.id} has {OLD_API}"
    return None


def parameters_of(creator: Callable[..., Any] | None) -> dict[str, bool]:
    """Return the names of the arguments that `env.kwargs` may give, and whether each is required."""
    try:
        parameters = inspect.signature(creator).parameters.values() if creator else []
    except (TypeError, ValueError):  # a builtin or an extension type
        return {}
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return {each.name: each.default is each.empty for each in named if each.name != "num_envs"}


def check_drawing(setting: str, configs: Sequence[EnvConfig]) -> None:
    """Raise `UserError` if pictures of these environments need pygame and it is not installed."""
    if importlib.util.find_spec("pygame") is not None:
        return
    for config in configs:
        registration = gym.registry.get(config.id)
        if registration and str(registration.entry_point).startswith(DRAWN_WITH_PYGAME):
            raise UserError(f"{setting}: pictures of {config.id} need the package pygame: pip install 'pronk[toys]'")


def check_single(env: Any, config: EnvConfig) -> None:
    """Raise `UserError` where what was made cannot be stepped as a `gymnasium.Env`."""
    if any(base.__module__.partition(".")[0] == "gym" for base in type(env).__mro__):
        raise old_api(env, "it is derived from gym.Env")
    if isinstance(env, gym.vector.VectorEnv):
        raise UserError(
            f"env.id: {config.id} made a vector environment, but is not itself a class of one; "
            "name the VectorEnv class, which is called with num_envs=N"
        )
    missing = [name for name in ("observation_space", "action_space", "reset", "step") if not hasattr(env, name)]
    if missing:
        raise UserError(
            f"env.id: {config.id} made a {type(env).__name__} without {', '.join(missing)}; expected a gymnasium.Env"
        )
    if not isinstance(env.observation_space, gym.Space):
        raise old_api(env, "its observation_space is not one of Gymnasium's")


def old_api(env: Any, sign: str) -> UserError:
    """Return the error for an environment of the old gym API; `sign` says what it was recognised by."""
    name = type(getattr(env, "unwrapped", env)).__name__
    return UserError(f"env.id: {name} has {OLD_API} ({sign})")
