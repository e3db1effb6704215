"""What every format of an exported policy looks like to `exporting.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from pronk.config.errors import nearest
from pronk.config.named import load
from pronk.exports.plain_policy import PlainPolicy
from pronk.types import UserError

Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


class Format(Protocol):
    """A way to write a policy to one file that others can read."""

    suffix: str
    """Of the file, with its dot."""
    note: str
    """For the user, beside the file's name; may be empty."""

    def __init__(self, policy: PlainPolicy) -> None:
        """A package that is missing is said here, before any work."""
        ...

    def write(self, path: Path, example: tuple[Tensor, ...], facts: str) -> None:
        """Write the file; `example` is one batch of every input, `facts` is JSON to keep inside the file."""
        ...

    def open(self, path: Path) -> Run:
        """The file as a function from inputs to outputs, through what the user's program would use."""
        ...

    def use(self, file: str) -> list[str]:
        """The lines of a program that loads `file`, whose folder is `here`, and defines `run(given)`: arrays by name
        in, arrays by name out."""
        ...


FORMATS = {
    "onnx": "pronk.exports.onnx_graph:Onnx",
    "torchscript": "pronk.exports.torchscript:TorchScript",
    "safetensors": "pronk.exports.safetensors_weights:Safetensors",
}


def check_format(name: str) -> None:
    """Refuse a name that is none."""
    if name not in FORMATS:
        raise UserError(f"--to: {name!r} is not one of {', '.join(FORMATS)}{nearest(name, FORMATS)}")


def make_format(name: str, policy: PlainPolicy) -> Format:
    """The format of that name, for that policy."""
    check_format(name)
    return load(FORMATS[name])(policy)
