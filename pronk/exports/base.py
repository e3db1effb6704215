"""The protocol of an export format, and the table of formats."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import Tensor

from pronk.exports.plain_policy import ArrayFunction, PlainPolicy


class Format(Protocol):
    """Writes a policy to one file and reads it back."""

    suffix: str
    """Of the file, with its dot."""
    note: str
    """A remark for the user; may be empty."""

    def __init__(self, policy: PlainPolicy) -> None:
        """Raises `UserError` where a package is missing, before any work is done."""
        ...

    def write(self, path: Path, example: tuple[Tensor, ...], facts: str) -> None:
        """Write the file. `example` is one batch of every input; `facts` is JSON to store inside the file."""
        ...

    def open(self, path: Path) -> ArrayFunction:
        """Load the file the way the user's program would."""
        ...

    def program(self, file: str) -> list[str]:
        """Lines of Python that load `file` from the folder `here` and define `run(inputs)`, arrays by name in and out.

        A format without such a function defines `act(observation, first, reward)` instead.
        """
        ...


FORMATS = {
    "onnx": "pronk.exports.onnx:Onnx",
    "torchscript": "pronk.exports.torchscript:TorchScript",
    "safetensors": "pronk.exports.safetensors:Safetensors",
}
