"""TorchScript: for C++ programs (libtorch), and for Python with torch and nothing else.

PyTorch no longer develops it but still writes, reads and runs it. Prefer ONNX for anything new.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from torch import Tensor

from pronk.exports.plain_policy import ArrayFunction, PlainPolicy, as_function


class TorchScript:
    """A `Format`."""

    suffix = ".pt"
    note = "PyTorch no longer develops TorchScript; prefer onnx unless you need libtorch"

    def __init__(self, policy: PlainPolicy) -> None:
        self._policy = policy

    def write(self, path: Path, example: tuple[Tensor, ...], facts: str) -> None:
        """Trace and freeze: what acting does not need, such as the value head, is left out."""
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # deprecation; `note` says it once
            traced = torch.jit.freeze(torch.jit.trace(self._policy, example, check_trace=False))
            torch.jit.save(traced, path, _extra_files={"pronk.json": facts.encode()})

    def open(self, path: Path) -> ArrayFunction:
        """Load with torch.jit."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return as_function(torch.jit.load(path), self._policy)

    def program(self, file: str) -> list[str]:
        """See `Format.program`."""
        return [
            "import torch",
            "",
            f'policy = torch.jit.load(here / "{file}")',
            f"names = {json.dumps(list(self._policy.outputs))}",
            "",
            "",
            "@torch.no_grad()",
            "def run(inputs):",
            "    outputs = policy(*(torch.from_numpy(array) for array in inputs.values()))",
            "    return {name: array.numpy() for name, array in zip(names, outputs)}",
        ]
