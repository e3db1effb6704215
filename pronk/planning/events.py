"""A simulated clock, and resources that several jobs share: the cores of a machine, a network link.

Nothing is random: two simulations of the same pipeline are the same event by event.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Action = Callable[[], None]


class Clock:
    """Calls actions in the order of their times; those of the same time in the order in which they were added."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds
        self._queue: list[tuple[float, int, Action]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, action: Action) -> None:
        """Call `action` so many seconds from now."""
        heapq.heappush(self._queue, (self.now + seconds, next(self._numbers), action))

    def run_while(self, condition: Callable[[], bool]) -> bool:
        """Call actions as long as `condition` holds. Returns False if there are none left: everything waits."""
        while condition():
            if not self._queue:
                return False
            self.now, _, action = heapq.heappop(self._queue)
            action()
        return True


class SharedResource:
    """Jobs that progress side by side, each at the same speed; the speed depends on how many there are.

    This is processor sharing. All jobs progress alike, so one number says how far: `_progress` is the work that a job
    would have done that was there from the beginning. A job of w units of work that begins at progress p is done at
    progress p + w, whatever comes and goes meanwhile, so a heap of these numbers replaces a list of remaining work.
    """

    def __init__(self, clock: Clock, speed: Callable[[int], float], servers: int = 1) -> None:
        """Args:
        clock: of the simulation.
        speed: `speed(n)` is the units of work per second that each of n jobs gets. A job of width w counts as w jobs.
        servers: how many jobs can be served at the same time, such as the cores of a machine.
        """
        self._clock, self._speed, self._servers = clock, speed, servers
        self._jobs: list[tuple[float, int, int, Action]] = []  # progress when done, number, width, what to do then
        self._numbers = itertools.count()
        self._progress = self._since = 0.0
        self._width = 0  # of all jobs
        self._wakeups = 0  # only the newest one counts
        self.done = 0.0
        """Units of work done so far, of all jobs; of one of width w, w times its units."""
        self.busy_seconds = 0.0
        """Seconds in which a server had a job, summed over the servers."""

    def work(self, amount: float, then: Action, width: int = 1) -> None:
        """Begin a job; call `then` when it is done."""
        self.catch_up()
        heapq.heappush(self._jobs, (self._progress + amount, next(self._numbers), width, then))
        self._width += width
        self._plan_wakeup()

    def catch_up(self) -> None:
        """Count the work that was done until now."""
        seconds, self._since = self._clock.now - self._since, self._clock.now
        if self._width:
            step = seconds * self._speed(self._width)
            self._progress += step
            self.done += step * self._width
            self.busy_seconds += seconds * min(self._width, self._servers)

    def _plan_wakeup(self) -> None:
        self._wakeups += 1
        if self._jobs:
            remaining = max(0.0, self._jobs[0][0] - self._progress)
            number = self._wakeups
            self._clock.after(remaining / self._speed(self._width), lambda: self._wake(number))

    def _wake(self, number: int) -> None:
        if number != self._wakeups:  # a job has come since, so the first to be done is done at another time
            return
        self.catch_up()
        due, _, width, then = heapq.heappop(self._jobs)
        self._progress = max(self._progress, due)  # rounding
        self._width -= width
        self._plan_wakeup()
        then()


def cores(count: int, crowding: float = 1.0) -> Callable[[int], float]:
    """Return the speed of each of n processes on so many cores; 1 while all cores are busy.

    `crowding` is the speed of a core while all are busy, compared with its speed while the others are idle: cores share
    caches, clocks and often arithmetic units. In between, the time for a unit of work grows linearly.
    """

    def speed(jobs: int) -> float:
        if jobs >= count:
            return count / jobs
        slowness = crowding + (1 - crowding) * (jobs - 1) / max(1, count - 1)
        return 1 / slowness

    return speed


def link(bytes_per_second: float) -> Callable[[int], float]:
    """Return the speed of each of n transfers over one network link."""
    return lambda transfers: bytes_per_second / transfers
