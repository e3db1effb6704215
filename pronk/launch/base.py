"""What every launcher looks like to the training loop."""

from __future__ import annotations

import os
import traceback
from typing import Any, Protocol

from pronk.types import Failure


class ActorFailed(Failure):
    """An actor cannot go on. The message has the actor and its own traceback: the root cause."""


class Launcher(Protocol):
    """Starts the actors, keeps them running, ends them. A `with` block: leaving it leaves nothing running."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...

    def watch(self) -> None:
        """Called often: notices who died or hangs, starts them anew; raises `ActorFailed` when that is no use."""
        ...


def own_traceback(error: Exception) -> str:
    """The traceback from the environment's first frame on: what the user wrote, not how Pronk got there."""
    frames = traceback.extract_tb(error.__traceback__)
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    outside = [index for index, frame in enumerate(frames) if not frame.filename.startswith(here)]
    kept = frames[outside[0] :] if outside else frames
    listed = "".join(traceback.format_list(kept))
    described = "".join(traceback.format_exception_only(error))
    return f"Traceback (most recent call last):\n{listed}{described}"
