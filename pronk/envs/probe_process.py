"""What a child process runs to try an environment; `probing.py` starts it."""

from __future__ import annotations

from typing import Any

from pronk.config import ResolvedConfig, plain_yaml, validate
from pronk.envs.base import probed_env
from pronk.envs.probing import as_plain
from pronk.processes.channel import Channel
from pronk.processes.failures import time_limit, user_code
from pronk.processes.messages import Alive, Probed

SEND_SECONDS = 5.0


def main(job: dict[str, Any], channel: Channel) -> None:
    """Make the environment and try it; report its spec, then close it."""
    text = job["config"]
    config = ResolvedConfig.from_yaml(text) if job["resolved"] else validate(plain_yaml.parse(text))
    channel.send(Alive(), SEND_SECONDS)
    with user_code("the environment"):
        with time_limit(config.actors.timeout_seconds):
            env = probed_env(config)
        channel.send(Probed(as_plain(env.spec)), SEND_SECONDS)
        env.close()
