"""What this machine has: cores that this process may use, memory, and a GPU."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path


def available_cores() -> int:
    """Return the number of cores: fewer than the machine has under a CPU affinity or a container quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


def memory_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def busy_cores(seconds: float) -> float:
    """Return how many cores were busy on average over the next `seconds`, during which this process does nothing.

    The load average, which is returned where the kernel has no /proc/stat, still counts what ended a minute ago.
    """
    try:
        before = core_times()
        time.sleep(seconds)
        busy, total = (after - then for after, then in zip(core_times(), before, strict=True))
    except (OSError, ValueError):
        return os.getloadavg()[0]
    return (os.cpu_count() or 1) * busy / max(1, total)


def core_times() -> tuple[int, int]:
    """Return for how long this machine's cores have been busy, and for how long they have been there, in ticks."""
    times = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = times[3] + times[4]  # and waiting for a disk
    return sum(times) - idle, sum(times)


def has_gpu() -> bool:
    """Return whether there is an NVIDIA GPU that is not hidden. Does not import torch, which would take a second."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    drivers = ("/proc/driver/nvidia/version", "/dev/nvidia0", "/dev/dxg")  # the last one: Linux in Windows
    return any(Path(driver).exists() for driver in drivers)


def cpu_name() -> str:
    """Return the model of this machine's CPU, or its architecture where that is not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
