"""What `ssh HOST pronk attend` runs: an attendant that is spoken to over its standard input and output.

One line of JSON per message. When the line is cut, or nothing is heard for a while, the process is ended.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any

from pronk.fleet.attendant import Attendant
from pronk.fleet.base import Event

SILENCE_SECONDS = 45.0  # after which the fleet is gone, although nobody has said so
GRACE_SECONDS = 30.0  # for a checkpoint


def attend() -> None:
    """Until the process has ended, or the fleet is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(heard,), daemon=True).start()
    attendant = Attendant(os.getcwd())
    last_heard = time.monotonic()
    try:
        tell(attendant.here())
        while not attendant.ended:
            try:
                message = heard.get(timeout=0.05)
                last_heard = time.monotonic()
            except queue.Empty:
                message = {}
            if message is None or time.monotonic() - last_heard > SILENCE_SECONDS:
                return
            if "start" in message:
                attendant.start(message["start"])
            elif "stop" in message:
                attendant.stop()
            for event in attendant.events():
                tell(event)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python's own last flush is quiet
    finally:
        attendant.end(GRACE_SECONDS)


def listen(heard: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """What the fleet says; None at its end."""
    for line in sys.stdin:
        heard.put(json.loads(line))
    heard.put(None)


def tell(event: Event) -> None:
    """The fleet."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()
