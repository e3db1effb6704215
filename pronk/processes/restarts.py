"""When a child is restarted, and when it is given up: one policy for actors, gateway, evaluator and remote processes.

- An end is the child's own fault if it raised, crashed, hung or exited by itself. A kill from outside (SIGKILL by the
  system or an operator, SIGTERM) is not.
- Faults in a row end it: `max_failures`. The count starts again when a life made progress and lasted `steady_seconds`.
- Kills are tolerated much longer: only `max_kills` in a row without any progress between them end it, as happens on a
  machine without enough memory, and only if no other child works (`Child.others_work`).
- The pause before a restart grows with the ends in a row, so that a broken child costs little.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from pronk.processes.messages import Failed

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS)


@dataclass(frozen=True)
class RestartPolicy:
    """Limits and pauses. A limit of None is never reached, one of 1 allows no restart."""

    max_failures: int | None = 3
    max_kills: int | None = 10
    steady_seconds: float = 60.0
    first_pause: float = 0.1  # seconds
    last_pause: float = 10.0
    growth: float = 4.0

    def pause(self, in_a_row: int) -> float:
        """Return the seconds to wait before the next try, after so many ends in a row."""
        power = min(in_a_row, 30) - 1  # a larger one overflows
        return min(self.last_pause, self.first_pause * self.growth**power)


USUAL = RestartPolicy()
NEVER = RestartPolicy(max_failures=1, max_kills=1)


@dataclass(frozen=True)
class End:
    """Why a life of a child ended."""

    cause: str
    """One line, then perhaps a traceback, a stack or the end of a log."""
    brief: str
    """One line."""
    is_fault: bool = True
    """The child's own, not a kill from outside."""
    raised: bool = False
    """The child reported an exception, or crashed: it is likely to happen again."""
    is_mistake: bool = False
    """Of the user's input: it will happen again."""


class Restarts:
    """Counts one child's ends in a row."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.failures = self.kills = 0

    def pause_after(self, is_fault: bool, seconds: float, progressed: bool) -> float | None:
        """Count an end and return the seconds until the restart; None: give up.

        Args:
            is_fault: the child's own, not a kill from outside.
            seconds: how long this life lasted.
            progressed: whether it did any work in this life.
        """
        policy = self._policy
        if progressed and (not is_fault or seconds >= policy.steady_seconds):
            self.failures = self.kills = 0
        self.failures += is_fault
        self.kills += not is_fault
        if reached(self.failures, policy.max_failures) or reached(self.kills, policy.max_kills):
            return None
        return policy.pause(self.failures + self.kills)


def reached(count: int, limit: int | None) -> bool:
    """Return whether a count is at its limit."""
    return limit is not None and count >= limit


def end_by_failure(failed: Failed) -> End:
    """Return why a process ended that reported its failure."""
    return End(failed.cause, last_line(failed.cause), raised=True, is_mistake=failed.mistake)


def end_by_exit(code: int, last_lines: str) -> End:
    """Return why a process ended that reported nothing. `last_lines` are of its log."""
    brief = describe_exit(code)
    cause = f"{brief}; its log ends with:\n{last_lines}"
    crashed = -code in CRASHES
    return End(cause, brief, is_fault=code >= 0 or crashed, raised=code > 0 or crashed)


def describe_exit(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-code}"


def last_line(text: str) -> str:
    """Return the last line of a traceback, which names the error."""
    return (text.splitlines() or ["unknown cause"])[-1]
