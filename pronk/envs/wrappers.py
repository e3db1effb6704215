"""`env.wrappers`: what is done to each environment before the agent sees it, by name and arguments.

The chain is part of the configuration, so training, evaluation, watching and export use the same one. The first wrapper
is the innermost. A name stands for a function `(env, **arguments) -> env` in `TABLE`, or is `module:Wrapper`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from pronk.config import EnvConfig
from pronk.config.errors import nearest
from pronk.config.named import find
from pronk.envs.entries import Entries
from pronk.envs.mistakes import parameters_of
from pronk.types import UserError

TABLE = {
    "auto": "pronk.envs.pictures:auto",
    "resize": "pronk.envs.pictures:resize",
    "grayscale": "pronk.envs.pictures:grayscale",
    "stack": "pronk.envs.stacking:stack",
    "skip": "pronk.envs.stacking:skip",
    "keys": "pronk.envs.entries:keys",
    "flatten": "pronk.envs.entries:flatten",
    "normalise": "pronk.envs.entries:normalise",
    "clip": "pronk.envs.entries:clip",
    "pad": "pronk.envs.entries:pad",
    "time_limit": "pronk.envs.stacking:time_limit",
}
DEFAULT = [{"auto": None}]


def wrapped(env: gym.Env, config: EnvConfig) -> gym.Env:
    """Apply the configured wrappers; raise `UserError` with one line for a wrong name or argument."""
    for entry in config.wrappers:
        ((name, value),) = entry.items()
        env = apply(env, name, value)
    return env


def apply(env: gym.Env, name: str, value: Any) -> gym.Env:
    """Apply one wrapper. `value`: its arguments by name, or the first one, or None."""
    make: Callable[..., gym.Env] = find("env.wrappers:", name, TABLE)
    arguments = arguments_of(make, name, value)
    try:
        made = make(env, **arguments)
    except UserError as error:
        raise UserError(f"env.wrappers: {name}: {error}") from None
    except (TypeError, ValueError, AssertionError, NotImplementedError, gym.error.Error) as error:
        raise UserError(
            f"env.wrappers: {name} failed: {' '.join(str(error).split()) or type(error).__name__}"
        ) from None
    if made is not env and not isinstance(made, gym.Env):
        raise UserError(f"env.wrappers: {name} made a {type(made).__name__}; expected a gymnasium.Wrapper")
    return made


def arguments_of(make: Callable[..., Any], name: str, value: Any) -> dict[str, Any]:
    """Return the arguments by name, checked against the signature."""
    accepted = dict(list(parameters_of(make).items())[1:])  # after the environment
    there_are = f"it takes {', '.join(accepted)}" if accepted else "it takes no arguments"
    if value is None:
        value = {}
    if not isinstance(value, dict):
        if not accepted:
            raise UserError(f"env.wrappers: {name} got {value!r}; {there_are}")
        value = {next(iter(accepted)): value}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(make).parameters.values())
    for key in value:
        if key not in accepted and not takes_any:
            raise UserError(f"env.wrappers: {name} takes no {key!r}{nearest(str(key), accepted)}; {there_are}")
    missing = [key for key, required in accepted.items() if required and key not in value]
    if missing:
        raise UserError(f"env.wrappers: {name} needs {', '.join(missing)}; write {{{name}: {{{missing[0]}: ...}}}}")
    return value


def refuse_wrappers(config: EnvConfig, instead: str) -> None:
    """Raise `UserError` if wrappers were asked for where they cannot be applied."""
    if asked_for(config):
        names = ", ".join(name for entry in config.wrappers for name in entry if name != "auto")
        raise UserError(f"env.wrappers: {names} cannot be applied to env.id={config.id}; {instead}")


def asked_for(config: EnvConfig) -> bool:
    """Return whether there are wrappers beside `auto`."""
    return any(entry not in DEFAULT for entry in config.wrappers)


def notes_of(env: Any) -> tuple[str, ...]:
    """Return what wrappers did without being asked, innermost first."""
    notes: list[str] = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, Entries):
            notes = [*env.notes, *notes]
        env = env.env
    return tuple(notes)
