"""How many threads torch uses, in a process that may not need torch at all."""

from __future__ import annotations

import sys


def limit_threads(count: int) -> None:
    """Let torch use so many threads, if anything has imported it: an environment may, or the policy."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)
