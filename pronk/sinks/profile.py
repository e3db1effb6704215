"""profile/: where the learner's time goes. A sink, because the learner's own thread has to call the profiler often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pronk.processes.profiling import LEARNER_PARTS, Profile


class LearnerProfile:
    """Profiles the learner between lines of metrics."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._profile = Profile(folder, "learner", LEARNER_PARTS, seconds)

    def __enter__(self) -> LearnerProfile:
        return self

    def __exit__(self, *_: object) -> None:
        self._profile.close()

    def write(self, line: dict[str, Any]) -> None:
        """Begin or end, if it is time to."""
        self._profile.tick()
