"""The interface between the training loop and a sink of metrics."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class Sink(Protocol):
    """Receives a line of metrics about once a second. A `with` block: leaving it flushes and closes."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Take a line of metrics: numbers by name, or None for what is not known yet."""
        ...


@runtime_checkable
class EvaluationSink(Sink, Protocol):
    """A sink that also receives evaluations."""

    def evaluated(self, line: dict[str, Any]) -> None:
        """Take a line of eval.jsonl."""
        ...
