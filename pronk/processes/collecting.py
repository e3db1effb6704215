"""How often Python collects garbage in Pronk's programs."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Collect garbage less often than Python does by default.

    Importing torch makes 300,000 objects, and all of them stay. Python visits them again and again while their number
    grows, which is an eighth of the time that a program takes to start.
    """
    gc.set_threshold(5_000, 10, 100)
