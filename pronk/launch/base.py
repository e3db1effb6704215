"""What every launcher looks like to the training loop."""

from __future__ import annotations

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
