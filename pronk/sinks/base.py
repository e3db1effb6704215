"""What every sink of metrics looks like to the training loop."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


class Sink(Protocol):
    """Receives a line of metrics about once a second. A `with` block: leaving it flushes and closes."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """One line: numbers, or None where there is none yet."""
        ...


@runtime_checkable
class EvaluationSink(Sink, Protocol):
    """A sink that also receives evaluations."""

    def evaluated(self, line: dict[str, Any]) -> None:
        """One line of eval.jsonl."""
        ...
