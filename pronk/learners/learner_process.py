"""What a further learner's process runs; `learners/processes.py` starts it. Its output is its log."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from typing import Any

from pronk.processes.lifeline import die_with_parent


def main(job: dict[str, Any]) -> None:
    """Learn until learner 0 is done."""
    die_with_parent(job["parent"])
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    rank = job["place"]["rank"]
    print(f"{time.strftime('%F %T')} learner {rank} starts (pid {os.getpid()})", flush=True)
    from pronk.learners import Place
    from pronk.starting import TrainingInterrupted, follow
    from pronk.types import Failure, UserError

    code = 0
    try:
        outcome = follow(Place(**job["place"]), print)["outcome"]
    except (TrainingInterrupted, KeyboardInterrupt):
        outcome, code = "interrupted", 130
    except (Failure, UserError) as error:
        outcome, code = f"failed: {error}", 1
    print(f"{time.strftime('%F %T')} learner {rank} ends: {outcome}", flush=True)
    sys.exit(code)
