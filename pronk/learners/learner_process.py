"""What a further learner's process runs; `local_learners.py` starts it."""

from __future__ import annotations

import sys
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.interrupts import INTERRUPTED


def main(job: dict[str, Any], channel: Channel) -> None:
    """Learn until learner 0 ends the run."""
    from pronk.learners import Rendezvous
    from pronk.processes import forced_exit
    from pronk.starting import TrainingInterrupted, train_as_participant

    try:
        with forced_exit.allowed():
            outcome = train_as_participant(Rendezvous(**job["rendezvous"]), print)["outcome"]
    except (TrainingInterrupted, KeyboardInterrupt):
        print("outcome: interrupted", flush=True)
        sys.exit(INTERRUPTED)
    print(f"outcome: {outcome}", flush=True)
