"""profile/: where the learner's time goes. A sink, because the learner's own thread has to call the profiler often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pronk.processes.parts_of_time import LEARNER
from pronk.processes.profiling import Method, Profile

PORTS = ("pronk.transport.shared_memory:SharedMemoryTransport", "pronk.transport.local:LocalTransport")
GROUPS = ("pronk.learners.coordinator:Coordinator", "pronk.learners.participant:Participant")
METHODS = (
    Method("pronk.learner:Learner", "gradient", "forward"),
    Method("torch:Tensor", "backward", "backward"),
    Method("pronk.learner:Learner", "update", "optimiser"),
    Method("pronk.training:Training", "_publish", "publish"),
    Method("pronk.batcher:Batcher", "next", "batching"),
    *(Method(port, "unrolls", "waiting", until_entered=True) for port in PORTS),
    Method("pronk.learners.base:SingleLearner", "step", "metrics"),  # apart from the learner's, it counts episodes
    *(Method("pronk.metrics.counters:Metrics", name, "metrics") for name in ("record", "count_lags")),
    Method("pronk.training:Training", "_report", "metrics"),
    *(Method(group, "step", "other learners") for group in GROUPS),
    *(Method("pronk.replay.buffer:Replay", name, "replay") for name in ("draw", "record")),
    Method("pronk.training:Training", "_save", "checkpoints"),
    Method("pronk.runs.saver:CheckpointSaver", "save_if_best", "checkpoints"),
)


class LearnerProfile:
    """Profiles the learner between lines of metrics."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._profile = Profile(folder, "learner", LEARNER, METHODS, seconds)

    def __enter__(self) -> LearnerProfile:
        return self

    def __exit__(self, *_: object) -> None:
        self._profile.close()

    def write(self, line: dict[str, Any]) -> None:
        """Begin or end, if it is time to."""
        self._profile.tick()
