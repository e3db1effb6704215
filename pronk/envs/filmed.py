"""Environments that can be looked at: those that the agent plays, and a picture of each after every step.

The agent sees exactly what it was trained on. A picture of an episode's end is taken before the environment resets
itself. Atari's pictures come from a second emulator that is given the same seeds and the same actions.
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
from pronk.envs.base import VectorEnv, with_extra_inputs
from pronk.envs.catch import boards
from pronk.envs.gymnasium_vector import GymnasiumVector, registered, user_factory, vector_of
from pronk.types import Array, Failure, UserError

RGB = "rgb_array"
GAMES = {"ale": "pronk.envs.ale_vector:games", "envpool": "pronk.envs.envpool_vector:games"}
SCREEN = (210, 160)  # of an Atari console
CONSOLE_FPS = 60
USUAL_FPS = 30
Look = Callable[[], list[Any]]


class Filmed(NamedTuple):
    """Environments, and how to look at them."""

    env: VectorEnv
    look: Look
    """After `reset` or `step`: for each environment a picture [H, W, 3], a text, or None where it cannot be drawn."""
    fps: float
    """Steps per second at which it is natural to watch."""


def make_filmed(config: ResolvedConfig, count: int) -> Filmed:
    """The configured environments, in this process, with pictures where they can be drawn."""
    makers = {"catch": filmed_catch, "atari": filmed_atari}
    filmed = makers.get(config.env.id, filmed_gymnasium)(config.env, count)
    return filmed._replace(env=with_extra_inputs(filmed.env, config))


def filmed_catch(config: EnvConfig, count: int) -> Filmed:
    """Slow enough to follow."""
    env = boards(config, count, RGB)
    return Filmed(GymnasiumVector(env), lambda: list(env.render() or [None] * count), fps=8)


def filmed_atari(config: EnvConfig, count: int) -> Filmed:
    """The agent's games and their twins."""
    games = find("env.atari.backend", config.atari.backend, GAMES)
    env = Twins(games(config, count), games(config, count, SCREEN))
    return Filmed(AtariVector(env, config.atari), env.pictures, CONSOLE_FPS / config.atari.frame_skip)


class Twins(gym.vector.VectorWrapper):
    """Vector environments that are played alike; the second one is looked at."""

    def __init__(self, env: gym.vector.VectorEnv, twin: gym.vector.VectorEnv) -> None:
        super().__init__(env)
        self._twin = twin
        self._seen: Any = ()

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin the same games."""
        self._seen, _ = self._twin.reset(seed=seed, options=options)
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Play the same actions."""
        self._seen, reward, *_ = self._twin.step(actions)
        answer = self.env.step(actions)
        if not np.array_equal(answer[1], reward):
            raise Failure("the emulator that is filmed has come to play another game than the agent's")
        return answer

    def close(self, **kwargs: Any) -> None:
        """End both."""
        self._twin.close(**kwargs)
        self.env.close(**kwargs)

    def pictures(self) -> list[Any]:
        """[H, W, 3] of each."""
        return [np.array(stack[-1]) for stack in self._seen]


def filmed_gymnasium(config: EnvConfig, count: int) -> Filmed:
    """Single environments with a camera each; where there is only a vector class, what that class draws."""
    config = config.model_copy(update={"vectorization": "sync"})
    factory = user_factory(config.id)
    if factory is None:
        spec = registered(config.id)
        if spec.entry_point is None:
            vector = drawing(lambda **kwargs: gym.make_vec(config.id, count, "vector_entry_point", **kwargs))
            return filmed_vector(vector(**config.kwargs))
        factory = lambda **kwargs: gym.make(config.id, **kwargs)  # noqa: E731
    elif isinstance(factory, type) and issubclass(factory, gym.vector.VectorEnv):
        kind: Callable[..., Any] = factory
        return filmed_vector(drawing(lambda **kwargs: kind(num_envs=count, **kwargs), kind)(**config.kwargs))
    cameras: list[Camera] = []

    def make_one(**kwargs: Any) -> Camera:
        cameras.append(Camera(drawing(factory)(**kwargs)))
        return cameras[-1]

    env = GymnasiumVector(vector_of(make_one, config, count))
    return Filmed(env, lambda: [camera.picture for camera in cameras], fps_of(cameras[0]))


def filmed_vector(env: Any) -> Filmed:
    """A vector environment that may draw its own pictures."""
    return Filmed(GymnasiumVector(env), lambda: list(drawn(env) or [None] * env.num_envs), fps_of(env))


def drawing(factory: Callable[..., Any], asked: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """The factory, told to make environments that draw pictures, if it takes such an argument."""
    parameters = inspect.signature(asked or factory).parameters
    takes = "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def make(**kwargs: Any) -> Any:
        if takes:
            try:
                return factory(**{**kwargs, "render_mode": RGB})
            except (TypeError, ValueError, AssertionError, gym.error.Error):
                pass  # it may draw something else, or nothing; a failure of its own comes again below
        return factory(**kwargs)

    return make


class Camera(gym.Wrapper):
    """Takes a picture after every step, before the reset that may follow at once."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.picture: Any = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """An opening is shown only where it does not cover the end of the episode before it."""
        answer = self.env.reset(**kwargs)
        if self.picture is None:
            self.picture = drawn(self.env)
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play, and look."""
        answer = self.env.step(action)
        self.picture = drawn(self.env)
        return answer


def drawn(env: Any) -> Any:
    """What an environment draws of itself now; None where it does not."""
    own = getattr(type(env.unwrapped), "render", None)
    if own in (gym.Env.render, gym.vector.VectorEnv.render):
        return None
    try:
        picture = env.render()
    except NotImplementedError:
        return None
    except gym.error.DependencyNotInstalled as error:
        raise UserError(f"{error}; for Gymnasium's own: pip install 'pronk[toys]'") from None
    if isinstance(env, gym.vector.VectorEnv):
        return picture
    return picture[-1] if isinstance(picture, list) and picture else picture


def fps_of(env: Any) -> float:
    """As the environment's author thought it."""
    fps = (env.metadata or {}).get("render_fps")
    return float(fps) if isinstance(fps, int | float) and 1 <= fps <= 240 else USUAL_FPS
