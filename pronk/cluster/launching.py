"""From a configuration and machines to a fleet."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pronk.cluster.fleet import Fleet, More
from pronk.cluster.hosts import Host
from pronk.cluster.keys import make_keys
from pronk.cluster.members import Post
from pronk.cluster.plan import Plan
from pronk.cluster.progress import Progress
from pronk.cluster.ssh import OverSsh
from pronk.config import Config
from pronk.runs.directory import RunDirectory, make_new, plain_name
from pronk.runs.reading import RUNS
from pronk.sinks import Sink
from pronk.transport.security import is_loopback
from pronk.types import UserError

Say = Callable[[str], None]
QUIETLY: dict[str, Any] = {"capture_output": True, "text": True}


def launch(
    config: Config,
    learners: list[Post],
    actors: list[Post],
    *,
    run_dir: Path | None,
    name: str,
    resume: bool,
    display: Sink | None,
    say: Say,
    more: More | None = None,
) -> dict[str, Any]:
    """Train on the given machines; gives back what `summary.json` holds."""
    refuse_unreachable(learners, actors)
    keys = make_keys()
    if run_dir is None:
        run_dir = make_new(RUNS, f"{plain_name(name)}-{time.strftime('%Y%m%d-%H%M%S')}")
    elif not resume:
        RunDirectory.refuse_used(run_dir)
        run_dir.mkdir(parents=True, exist_ok=True)
    with marked(run_dir) as marker:
        plan = Plan(config, keys, str(run_dir), str(marker), resume)
        with display or contextlib.nullcontext():
            progress = Progress(run_dir / "metrics.jsonl", display, say)
            return Fleet(plan, run_dir, learners, actors, progress, more).go()


def refuse_unreachable(learners: list[Post], actors: list[Post]) -> None:
    """What is called localhost here is another machine there."""
    names = [post.host for post in [*learners, *actors] if post.host]
    near = [post.host for post in learners if post.host and is_loopback(post.host)]
    if near and not all(map(is_loopback, names)):
        raise UserError(
            f"a learner on {near[0]} cannot be reached from other machines; give it the name they know it by"
        )


def real_name(host: Host, ssh_config: Path | None) -> str:
    """What other machines know it by: ssh's configuration may have names of its own."""
    try:
        asked = subprocess.run(["ssh", "-G", *(["-F", str(ssh_config)] if ssh_config else []), host.host], **QUIETLY)
    except FileNotFoundError:
        raise UserError("the program ssh is not installed here") from None
    names = [line.split(" ", 1)[1] for line in asked.stdout.splitlines() if line.startswith("hostname ")]
    return names[0] if names else host.host


def ssh_posts(hosts: list[Host], role: str, program: str, folder: str | None, ssh_config: Path | None) -> list[Post]:
    """One per process of this role."""

    def connect(host: Host) -> Callable[[], OverSsh]:
        return lambda: OverSsh(host, program, folder, ssh_config)

    return [
        Post(host.host, connect(host), name, host.devices_of(index))
        for host in hosts
        if host.role == role
        for name in [real_name(host, ssh_config)]
        for index in range(host.count)
    ]


@contextlib.contextmanager
def marked(run: Path) -> Iterator[Path]:
    """A file beside the run directory that another machine can see if it has the same disk."""
    marker = run.with_name(f".{run.name}.{secrets.token_hex(8)}")
    marker.touch()
    try:
        yield marker
    finally:
        marker.unlink(missing_ok=True)
