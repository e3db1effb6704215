"""Environments for the agent to play, with a picture of each after every step.

The agent sees exactly what it was trained on. The picture of an episode's end is taken before the environment resets
itself. Atari's pictures come from a second emulator that gets the same seeds and the same actions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from pronk.config import EnvConfig, ResolvedConfig
from pronk.config.named import find
from pronk.envs.atari import AtariVector
from pronk.envs.base import VectorEnv, maker_of_kind, played_as, refuse_task, with_extra_inputs
from pronk.envs.catch import boards
from pronk.envs.gymnasium_ids import creator_of, make_vector, maker_of, single_creator, vector_creator
from pronk.envs.gymnasium_vector import adapt
from pronk.envs.sync_vector import SyncVector
from pronk.envs.tasks import TaskVector, dealt_tasks, settings_of
from pronk.types import Array, Failure, UserError

RGB = "rgb_array"
GAMES = {"ale": "pronk.envs.ale_vector:games", "envpool": "pronk.envs.envpool_vector:games"}
SCREEN = (210, 160)  # height and width of an Atari picture
CONSOLE_FPS = 60
DEFAULT_FPS = 30


class Filmed(NamedTuple):
    """Environments, and how to get their pictures."""

    env: VectorEnv
    look: Callable[[], list[Any]]
    """After `reset` or `step`: for each environment a picture [H, W, 3], a text, or None if it cannot be drawn."""
    fps: float
    """Steps per second at which it is natural to watch."""


def make_filmed(config: ResolvedConfig, count: int, task: str | None = None) -> Filmed:
    """Make the configured environments in this process, with pictures if they can be drawn.

    With several tasks, all environments play `task`, or each plays the next task in turn.
    """
    if config.env.tasks:
        filmed = filmed_tasks(config.env, count, task)
    else:
        refuse_task(task)
        filmed = filmed_one(played_as(config.env), count)
    return filmed._replace(env=with_extra_inputs(filmed.env, config))


def filmed_one(config: EnvConfig, count: int) -> Filmed:
    """Make environments of one task."""
    makers = {"catch": filmed_catch, "atari": filmed_atari}
    makers |= {"envpool": filmed_envpool, "pettingzoo": filmed_teams}
    kind = config.id.partition(":")[0] if maker_of_kind(config.id) else ""
    return makers.get(kind, filmed_gymnasium)(config, count)


def filmed_tasks(config: EnvConfig, count: int, task: str | None) -> Filmed:
    """Make environments of several tasks side by side."""
    settings, _ = settings_of(config)
    played = dealt_tasks(config, count, 0, task)
    each = {
        index: filmed_one(settings[index], int(np.count_nonzero(played == index)))
        for index in np.unique(played).tolist()
    }

    def look() -> list[Any]:
        pictures = {index: iter(filmed.look()) for index, filmed in each.items()}
        return [next(pictures[index]) for index in played.tolist()]

    env = TaskVector({index: filmed.env for index, filmed in each.items()}, played, config)
    return Filmed(env, look, max(filmed.fps for filmed in each.values()))


def filmed_catch(config: EnvConfig, count: int) -> Filmed:
    """Make boards of Catch, at a speed that is slow enough to follow."""
    return filmed_vector(boards(config, count, RGB))._replace(fps=8)


def filmed_atari(config: EnvConfig, count: int) -> Filmed:
    """Make the agent's games and a second emulator for each, whose screen is filmed."""
    games = find("env.atari.backend", config.atari.backend, GAMES)
    env = Twins(games(config, count), games(config, count, SCREEN))
    return Filmed(AtariVector(env, config), env.pictures, CONSOLE_FPS / config.atari.frame_skip)


class Twins(gym.vector.VectorWrapper):
    """Two vector environments that play the same actions; the second one is filmed."""

    def __init__(self, env: gym.vector.VectorEnv, twin: gym.vector.VectorEnv) -> None:
        super().__init__(env)
        self._twin = twin
        self._seen: Any = ()

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start the same games in both."""
        self._seen, _ = self._twin.reset(seed=seed, options=options)
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Play the same actions in both."""
        self._seen, reward, *_ = self._twin.step(actions)
        answer = self.env.step(actions)
        if not np.array_equal(answer[1], reward):
            raise Failure("the recorded emulator diverged from the agent's")
        return answer

    def close(self, **kwargs: Any) -> None:
        """Close both."""
        self._twin.close(**kwargs)
        self.env.close(**kwargs)

    def pictures(self) -> list[Any]:
        """Return a picture [H, W, 3] of each game."""
        return [np.array(stack[-1]) for stack in self._seen]


def filmed_envpool(config: EnvConfig, count: int) -> Filmed:
    """Make EnvPool's environments, which are not drawn."""
    from pronk.envs.envpool_ids import make

    return Filmed(make(config, count), lambda: [None] * count, DEFAULT_FPS)


def filmed_teams(config: EnvConfig, count: int) -> Filmed:
    """Make parallel environments; every agent of a team has the team's picture."""
    from pronk.envs import pettingzoo_parallel

    make_one = pettingzoo_parallel.team_maker(config)
    env = pettingzoo_parallel.TeamVector(drawing(make_one, pettingzoo_parallel.creator_of(config)), config, count)

    def look() -> list[Any]:
        return [picture for team in env.teams for picture in [drawn(team.env)] * team.size]

    return Filmed(env, look, DEFAULT_FPS)


def filmed_gymnasium(config: EnvConfig, count: int) -> Filmed:
    """Make single environments with a camera each; if there is only a vector class, use what that class draws."""
    config = config.model_copy(update={"vectorization": "sync"})
    vector = vector_creator(config)
    if vector is not None:
        return filmed_vector(make_vector(config, drawing(vector, creator_of(config)), count))
    cameras: list[Camera] = []
    create = drawing(single_creator(config), creator_of(config))

    def with_camera(**kwargs: Any) -> Camera:
        cameras.append(Camera(create(**kwargs)))
        return cameras[-1]

    env = SyncVector(maker_of(config, with_camera), count)
    return Filmed(env, lambda: [camera.picture for camera in cameras], fps_of(cameras[0]))


def filmed_vector(env: Any) -> Filmed:
    """Use the pictures of a vector environment that may draw its own."""
    return Filmed(adapt(env), lambda: list(drawn(env) or [None] * env.num_envs), fps_of(env))


def drawing(create: Callable[..., Any], signature_of: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes environments with `render_mode`, if `signature_of` takes such an argument."""
    parameters = inspect.signature(signature_of).parameters
    takes = "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def make(**kwargs: Any) -> Any:
        if takes:
            try:
                return create(**{**kwargs, "render_mode": RGB})
            except (TypeError, ValueError, AssertionError, gym.error.Error):
                pass  # it may draw something else, or nothing; an error of its own is raised again below
        return create(**kwargs)

    return make


class Camera(gym.Wrapper):
    """Takes a picture after every step, before the reset that may follow at once."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.picture: Any = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Reset. The first picture of an episode must not replace the last one of the episode before it."""
        answer = self.env.reset(**kwargs)
        if self.picture is None:
            self.picture = drawn(self.env)
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play, and take a picture."""
        answer = self.env.step(action)
        self.picture = drawn(self.env)
        return answer


def drawn(env: Any) -> Any:
    """Return what an environment draws now; None if it does not draw."""
    own = getattr(type(env.unwrapped), "render", None)
    if own in (gym.Env.render, gym.vector.VectorEnv.render):
        return None
    try:
        picture = env.render()
    except NotImplementedError:
        return None
    except gym.error.DependencyNotInstalled as error:
        raise UserError(f"{error}; for Gymnasium's own environments: pip install 'pronk[toys]'") from None
    if isinstance(env, gym.vector.VectorEnv):
        return picture
    return picture[-1] if isinstance(picture, list) and picture else picture


def fps_of(env: Any) -> float:
    """Return the speed that the environment declares, if it is a usable one."""
    fps = (env.metadata or {}).get("render_fps")
    return float(fps) if isinstance(fps, int | float) and 1 <= fps <= 240 else DEFAULT_FPS
