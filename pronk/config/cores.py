"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path


def available_cores() -> int:
    """Return the number of cores: fewer than the machine has under a CPU affinity or a container quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return cores
