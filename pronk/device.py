"""Where the learner computes: which device, and whether it can compute in the configured precision."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys

import torch

from pronk.types import UserError

PROBE_SECONDS = 60.0  # importing torch takes most of it, on a busy machine much longer than the 2 s of an idle one

# Sizes that oneDNN hands to its fastest bfloat16 kernels; smaller products take another path and would prove nothing.
BFLOAT16_PROBE = """
import torch
x = torch.randn(8, 16, 12, 12).contiguous(memory_format=torch.channels_last)
conv, linear = torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.Linear(32 * 12 * 12, 64)
with torch.autocast("cpu", torch.bfloat16):
    loss = linear(conv(x).flatten(1)).float().square().sum()
loss.backward()
assert loss.isfinite() and conv.weight.grad.isfinite().all() and linear.weight.grad.isfinite().all()
"""


def choose_device(name: str, index: int = 0) -> torch.device:
    """Return the device called `name`; `auto` is the GPU of the `index`-th learner on this machine, else the CPU.

    Raises UserError if the device cannot hold a tensor here.
    """
    if name == "auto":
        name = f"cuda:{index % torch.cuda.device_count()}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("it holds no data")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"learner.device: {name!r} cannot be used here: {reason}; try auto or cpu") from None
    return device


def check_precision(device: torch.device, precision: str) -> None:
    """Raise UserError if `learner.precision` would crash this process.

    Some virtual machines advertise AMX but cannot run it. There, every bfloat16 matrix product in oneDNN ends the
    process with SIGILL, which Python cannot catch. So a child process tries one first.
    """
    if precision != "bfloat16" or device.type != "cpu":
        return
    problem = probe(BFLOAT16_PROBE)
    if problem is not None:
        raise UserError(
            f"learner.precision: bfloat16 does not work on this CPU (a test program {problem}); set the environment "
            "variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, or use learner.precision=float32"
        )


@functools.cache
def probe(program: str) -> str | None:
    """Run a Python program in a child process, once per process. Return what went wrong, or None."""
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"did not end within {PROBE_SECONDS:g} s"
    if done.returncode < 0:
        return f"was killed by {signal.Signals(-done.returncode).name}"
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return ": ".join([f"failed with exit code {done.returncode}", *last])
    return None
