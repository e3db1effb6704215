"""TorchScript: for programs in C++ (libtorch), and for Python with torch and nothing else.

PyTorch no longer develops it, and says so at each use; it still writes, reads and runs it. For anything new, ONNX.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pronk.exports.base import Run
from pronk.exports.plain_policy import PlainPolicy


class TorchScript:
    """A `Format`."""

    suffix = ".pt"
    note = "PyTorch no longer develops TorchScript; prefer --to onnx unless you need libtorch"

    def __init__(self, policy: PlainPolicy) -> None:
        self._policy = policy

    def write(self, path: Path, example: tuple[Tensor, ...], facts: str) -> None:
        """Traced and frozen: what acting does not need, such as the value, is left out."""
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of deprecation: said once, by `note`
            traced = torch.jit.freeze(torch.jit.trace(self._policy, example, check_trace=False))
            torch.jit.save(traced, path, _extra_files={"pronk.json": facts.encode()})

    def open(self, path: Path) -> Run:
        """By torch.jit."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = torch.jit.load(path)
        names = list(self._policy.outputs)

        @torch.no_grad()
        def run(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            answer = loaded(*(torch.from_numpy(given[name]) for name in self._policy.inputs))
            return {name: array.numpy() for name, array in zip(names, answer, strict=True)}

        return run

    def use(self, file: str) -> list[str]:
        """See `Format.use`."""
        return [
            "import torch",
            "",
            f'policy = torch.jit.load(here / "{file}")',
            f"names = {json.dumps(list(self._policy.outputs))}",
            "",
            "",
            "@torch.no_grad()",
            "def run(given):",
            "    answer = policy(*(torch.from_numpy(array) for array in given.values()))",
            "    return {name: array.numpy() for name, array in zip(names, answer)}",
        ]
