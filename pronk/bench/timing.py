"""How often something can be done per second."""

from __future__ import annotations

import time
from collections.abc import Callable


def calls_per_second(call: Callable[[], object], seconds: float) -> float:
    """Call a function for about `seconds`, at least once, and return the calls per second."""
    began, calls = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds or not calls:
        call()
        calls += 1
    return calls / spent
