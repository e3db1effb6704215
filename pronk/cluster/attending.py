"""What `ssh HOST pronk attend` runs: an attendant that is spoken to over its standard input and output.

One line of JSON per message. When the line is cut, or nothing is heard for a while, the process is ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import sys
import threading
from typing import Any

from pronk.cluster.attendant import Attendant
from pronk.cluster.base import Event

SILENCE_SECONDS = 45.0  # after which the fleet is gone, although nobody has said so
GRACE_SECONDS = 30.0  # for a checkpoint


def attend() -> None:
    """Until the process has ended, or the fleet is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    attendant = Attendant(os.getcwd())
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    tell(attendant.here())
    # In a thread: whoever is gone does not read either, and what is told then waits for ever.
    threading.Thread(target=listen, args=(attendant, jobs), daemon=True).start()
    try:
        while not attendant.ended:
            with contextlib.suppress(queue.Empty):
                attendant.start(jobs.get(timeout=0.05))
            for event in attendant.events():
                tell(event)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's own last flush is quiet
    finally:
        attendant.end(GRACE_SECONDS)


def listen(attendant: Attendant, jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    """To what the fleet says, as long as it does."""
    heard = b""
    while select.select([sys.stdin], [], [], SILENCE_SECONDS)[0] and (chunk := os.read(sys.stdin.fileno(), 1 << 16)):
        *lines, heard = (heard + chunk).split(b"\n")
        for message in map(json.loads, lines):
            if "start" in message:
                jobs.put(message["start"])
            elif "stop" in message:
                attendant.stop()
    attendant.end(GRACE_SECONDS)
    os._exit(0)


def tell(event: Event) -> None:
    """The fleet."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
