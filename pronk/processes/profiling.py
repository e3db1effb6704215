"""Where the time of a process goes: a table of its parts, and a trace for Perfetto (https://ui.perfetto.dev).

    PROFILE/learner.txt       share of the time in each part, from samples of the stack
    PROFILE/learner.json.gz   every operation of torch during one second

Nothing is measured before the first second has passed: by then everything that is only done once has been done.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

SAMPLE_SECONDS = 0.002
WARM_UP_SECONDS = 1.0
TRACE_SECONDS = 1.0  # a second has tens of thousands of operations
REST = "everything else"

Parts = dict[tuple[str, str], str]
"""(start of a module's name, function) -> what it does. Of a stack, the innermost function that is named counts."""

LEARNER_PARTS: Parts = {
    ("pronk.batcher", "next"): "waiting for unrolls, and stacking them to batches",
    ("pronk.learner", "gradient"): "forward, loss and backward",
    ("pronk.learner", "update"): "optimiser",
    ("pronk.learners", "step"): "adding up gradients, counting episodes",
    ("pronk.transport", "publish"): "publishing parameters",
    ("pronk.replay.buffer", "record"): "replay",
    ("pronk.training", "_report"): "metrics and display",
    ("pronk.training", "_save"): "checkpoints",
}
ACTOR_PARTS: Parts = {
    ("pronk.envs", "step"): "environments",
    ("pronk.policies", "act"): "inference",
    ("pronk.policies", "refresh"): "loading parameters",
    ("pronk.transport", "unroll"): "waiting for a free slot",
    ("pronk.actor", "_play"): "filling the unroll",
    ("pronk.actor", "check_finite"): "looking for NaN",
}


class Profile:
    """Profiles the thread that calls `tick`, for `seconds`."""

    def __init__(self, folder: Path, name: str, parts: Parts, seconds: float) -> None:
        """The files are `folder`/`name`.txt and .json.gz."""
        self._folder, self._name, self._parts, self._seconds = folder, name, parts, seconds
        self._stages = [self._sample, self._end_samples, self._end_trace]
        self._next_at: float | None = None
        self._sampler: Sampler | None = None
        self._trace: Any = None

    def tick(self) -> None:
        """Begin or end, if it is time to. Call it again and again, from the thread that is to be profiled."""
        now = time.monotonic()
        if self._next_at is None:
            self._next_at = now + WARM_UP_SECONDS
        elif self._stages and now >= self._next_at:
            pause = self._stages.pop(0)()
            self._next_at = time.monotonic() + pause  # starting torch's profiler takes a second or two

    def close(self) -> None:
        """Write what there is, if the run ended before the profile did."""
        if self._sampler is not None:
            self._write_table(self._sampler.end())
        if self._trace is not None:
            self._end_trace()
        self._stages.clear()

    def _sample(self) -> float:
        """Begin to count where the thread is. This and the next two return how many seconds later the next is due."""
        self._sampler = Sampler(threading.get_ident(), self._parts)
        return self._seconds

    def _end_samples(self) -> float:
        assert self._sampler is not None
        self._write_table(self._sampler.end())
        self._sampler = None
        self._trace = start_trace()
        return TRACE_SECONDS

    def _end_trace(self) -> float:
        with muted_errors():
            self._trace.stop()
        self._trace.export_chrome_trace(str(self._folder / f"{self._name}.json.gz"))
        self._trace = None
        return 0.0

    def _write_table(self, samples: Counter[str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        total = max(1, samples.total())
        lines = [f"{count / total:6.1%}  {part}" for part, count in samples.most_common()]
        (self._folder / f"{self._name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def start_trace() -> Any:
    """Start torch's profiler, which sees a GPU too."""
    from torch.profiler import profile

    trace = profile()
    with muted_errors():
        trace.start()
    return trace


@contextlib.contextmanager
def muted_errors() -> Iterator[None]:
    """Silence what native code writes to standard error: the profiler reports its own start and stop there."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class Sampler(threading.Thread):
    """Looks at the stack of another thread many times a second, and counts which part it is in."""

    def __init__(self, thread: int, parts: Parts) -> None:
        super().__init__(daemon=True)
        self._thread, self._parts = thread, parts
        self._ending = threading.Event()
        self._samples: Counter[str] = Counter()
        self.start()

    def run(self) -> None:
        """See `threading.Thread`."""
        while not self._ending.wait(SAMPLE_SECONDS):
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                self._samples[part_of(frame, self._parts)] += 1

    def end(self) -> Counter[str]:
        """Stop, and return how often each part was seen."""
        self._ending.set()
        self.join()
        return self._samples


def part_of(frame: FrameType | None, parts: Parts) -> str:
    """Return the part that a stack is in."""
    while frame is not None:
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        for (start, name), part in parts.items():
            if function == name and module.startswith(start):
                return part
        frame = frame.f_back
    return REST
