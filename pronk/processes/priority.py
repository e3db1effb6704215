"""The priority of work beside training, which may be delayed so that training is not."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

NICENESS = 10  # of 19; measured in benchmarks/evaluator_cost.py


def lower_priority(niceness: int = NICENESS) -> None:
    """Give training precedence over this process.

    It then runs where actors and learner leave a core idle, and gets a small share of a busy one. A desktop Linux
    weighs sessions against one another, not processes, and has a priority per session (elsewhere the file does not
    exist or cannot be written).
    """
    set_priority_of_session(os.nice(niceness))


def set_priority_of_session(niceness: int) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness), encoding="ascii")
