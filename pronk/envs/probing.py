"""Finds the spec of an environment by making one, trying it and closing it again.

    this process                                    child (`probe_process.py`)
    probe_in_child --Run(config)-->                 make the environment, reset it, play one action
                   <--Alive, then Probed(spec)--    close it
                   kill it, and all that it started

An environment of the user's may do anything in `__init__`: crash, exit, start processes and threads that never end, or
take a minute to close. In a child none of this reaches the learner. Environments that are known to behave are tried in
this process, because a new one takes half a second to start.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pronk.config import Config, EnvConfig, ResolvedConfig
from pronk.envs.base import TABLE, probe_spec
from pronk.processes import child, logs
from pronk.processes.channel import Channel, ChannelClosed
from pronk.processes.failures import PRONK, time_limit, user_code
from pronk.processes.messages import Alive, Failed, Message, Probed, Run
from pronk.processes.restarts import describe_exit
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Failure, Tree, UserError, map_tree

WELL_BEHAVED = ("ALE/", "BabyAI-", "MinAtar/", "MiniGrid-", "popgym-")  # ids with such a beginning
START_SECONDS = 120.0  # for the child to start, on a very busy machine
GRACE_SECONDS = 5.0  # beyond the limit, which the child keeps by itself unless it hangs outside of Python
CLOSE_SECONDS = 10.0
POLL_SECONDS = 0.2
LAST_LINES = 40


def spec_of(config: Config | ResolvedConfig, say: Callable[[str], None] = lambda line: None) -> EnvSpec:
    """Return the spec of the configured environment.

    Raises:
        UserError: a mistake in the configuration or the environment.
        Failure: the environment raised, hung, crashed or ended its process.
    """
    # With transport=local it plays in this process anyway, where a debugger can look at it.
    if config.transport.name == "local" or all(map(is_well_behaved, config.env.each_task)):
        with user_code("the environment"), time_limit(config.actors.timeout_seconds):
            return probe_spec(config)
    return probe_in_child(config, say)


def is_well_behaved(config: EnvConfig) -> bool:
    """Whether an environment and its wrappers are all from packages that are known to leave nothing behind."""
    if config.id.startswith("__main__:"):
        return True  # its code is in this process already; `starting.prepare` sends it to others later
    if ":" in config.id or any(":" in name for entry in config.wrappers for name in entry):
        return False
    if config.id in TABLE or config.id.startswith(WELL_BEHAVED):
        return True
    import gymnasium as gym

    from pronk.envs.gymnasium_ids import REGISTERED_BY

    registration = gym.registry.get(config.id)
    if registration is None:  # of a package that is not imported yet, or a mistake
        return not config.id.startswith(tuple(REGISTERED_BY))
    return str(registration.entry_point).startswith("gymnasium.envs.")


def probe_in_child(config: Config | ResolvedConfig, say: Callable[[str], None]) -> EnvSpec:
    """Try the environment in a process of its own, which is killed afterwards with all that it started."""
    limit = config.actors.timeout_seconds
    with temporary_log() as log:
        job = {"config": config.to_yaml(), "resolved": isinstance(config, ResolvedConfig)}
        run = Run("the environment", "pronk.envs.probe_process", job, 0, os.getpid())
        process, channel = child.start(run, log)
        try:
            spec = receive_spec(process, channel, log, limit)
            if not has_closed(process, channel):
                say(f"the environment takes more than {CLOSE_SECONDS:g} s to close; its process is ended without that")
            return spec
        finally:
            channel.close()
            child.kill(process)


@contextlib.contextmanager
def temporary_log() -> Iterator[Path]:
    """Make a file for what the environment prints; on a full disk nothing is kept."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pronk-", ignore_cleanup_errors=True))
        except OSError:
            yield Path(os.devnull)
        else:
            yield Path(folder) / "environment.log"


def receive_spec(process: subprocess.Popen[bytes], channel: Channel, log: Path, limit: float) -> EnvSpec:
    """Wait for the child's result. The time limit counts from when it begins to make the environment."""
    deadline = time.monotonic() + max(START_SECONDS, limit)
    while time.monotonic() < deadline:
        code = process.poll()  # before its messages are read, so that no last one is missed
        messages = messages_of(channel)
        for message in messages:
            if isinstance(message, Alive):
                deadline = time.monotonic() + limit + GRACE_SECONDS
            elif isinstance(message, Probed):
                return spec_from(message.spec)
        if code is not None and not messages:
            raise Failure(f"the environment ended its process: {describe_exit(code)}{last_words(log)}")
        logs.bound(log)
    raise Failure(
        f"the environment failed: it took longer than {limit:g} s (actors.timeout_seconds); it was here:\n"
        f"{child.stack_of(process, log)}"
    )


def has_closed(process: subprocess.Popen[bytes], channel: Channel) -> bool:
    """Wait until the child has closed the environment and ended. Raises what closing it raised."""
    deadline = time.monotonic() + CLOSE_SECONDS
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        if not messages_of(channel) and ended:
            return True
    return False


def messages_of(channel: Channel) -> list[Message]:
    """Wait a moment for messages of the child. Raises the failure that it reports."""
    try:
        messages = channel.receive(POLL_SECONDS)
    except ChannelClosed:  # it is about to end; its exit code will tell why
        time.sleep(0.01)
        return []
    for message in messages:
        if isinstance(message, Failed):
            raise UserError(message.cause) if message.mistake else Failure(message.cause)
    return messages


def last_words(log: Path) -> str:
    """Return the end of what the environment printed; of a crash report, only the frames that are not Pronk's."""
    paths = {form for path in PRONK for form in (path, path.encode("ascii", "backslashreplace").decode())}  # in a crash
    ours = (" starts (life ", *(f'File "{path}' for path in paths), 'File "<', "Extension modules:")
    lines = [line for line in child.tail(log, LAST_LINES).splitlines() if not any(part in line for part in ours)]
    return "".join(f"\n{line}" for line in lines if line.strip())


# ---- a spec as plain data


def as_plain(spec: EnvSpec) -> dict[str, Any]:
    """Return a spec as JSON can hold it."""
    return {**vars(spec), "observation": map_tree(asdict, spec.observation), "action": asdict(spec.action)}


def spec_from(plain: dict[str, Any]) -> EnvSpec:
    """Return the spec that `as_plain` turned into plain data."""
    action = plain["action"]
    others: dict[str, Any] = {key: value for key, value in plain.items() if key not in ("observation", "action")}
    tuples: dict[str, Any] = {key: tuple(value) for key, value in others.items() if isinstance(value, list)}
    action_spec = ActionSpec(tuple(action["shape"]), tuple(action["choices"]))
    return EnvSpec(array_specs(plain["observation"]), action_spec, **{**others, **tuples})


def array_specs(plain: dict[str, Any]) -> Tree:
    """Return a tree of specs. A dict whose `shape` is a list is one spec: in a tree, `shape` would be a dict, too."""
    if isinstance(plain.get("shape"), list | tuple):
        return ArraySpec(tuple(plain["shape"]), plain["dtype"], tuple(plain["categories"]), plain["words"])
    return {key: array_specs(part) for key, part in plain.items()}
