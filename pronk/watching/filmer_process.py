"""What the filmer process runs; `evaluation/filmer.py` starts it.

It films an episode with each checkpoint that it is sent. A clip gets its name only when it is complete, so the process
may be killed at any instant.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.messages import Alive, ClipFilmed, FilmClip
from pronk.processes.priority import lower_priority

NICENESS = 5  # of 19: about a quarter of a core where training keeps all of them busy; a clip takes a few seconds
ALIVE_SECONDS = 1.0  # between heartbeats while it films


def main(job: dict[str, Any], channel: Channel) -> None:
    """Film checkpoint after checkpoint, always the same episode: only the agent changes."""
    lower_priority(NICENESS)
    from pronk.config import ResolvedConfig
    from pronk.runs.checkpoint import load_checkpoint
    from pronk.watching.watch import film_checkpoint

    config = ResolvedConfig.from_yaml(job["config"])
    reported = 0.0

    def report_alive(_: Any) -> None:
        nonlocal reported
        if time.monotonic() - reported >= ALIVE_SECONDS:
            reported = time.monotonic()
            channel.send(Alive())

    report_alive(None)
    for message in channel:
        assert isinstance(message, FilmClip)
        clip = film_checkpoint(
            config, load_checkpoint(Path(message.path)), Path(message.folder), message.name, report_alive
        )
        channel.send(ClipFilmed(str(clip)))
