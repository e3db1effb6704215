"""safetensors: the weights alone, by the names they have in the network. No code is in the file, and none is run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pronk.config.named import import_extra
from pronk.exports import by_hand
from pronk.exports.base import Run
from pronk.exports.plain_policy import PlainPolicy


class Safetensors:
    """A `Format`. Where the network is one of Pronk's own, the program beside the weights is the network written out
    by hand, and that is what is compared with the trained policy."""

    suffix = ".safetensors"

    def __init__(self, policy: PlainPolicy) -> None:
        self._policy = policy
        self._program = by_hand.program(policy)
        own = "the weights of a network of your own: the computation stays in your class"
        self.note = "" if self._program else own
        import_extra("safetensors", "--to safetensors", "export")

    def write(self, path: Path, example: tuple[Tensor, ...], facts: str) -> None:
        """Every weight, those of the value too."""
        from safetensors.torch import save_file

        weights = {name: tensor.contiguous() for name, tensor in self._policy.network.state_dict().items()}
        save_file(weights, path, metadata={"format": "pt", "pronk": facts})

    def open(self, path: Path) -> Run:
        """The program written out by hand; else a copy of the network with the weights of the file."""
        from safetensors.torch import load_file

        weights = load_file(path)
        if self._program:
            known: dict[str, Any] = {"w": weights}
            exec("\n".join([*by_hand.IMPORTS, *self._program]), known)  # our own lines, from `by_hand`
            return known["run"]
        copied = copy.deepcopy(self._policy)
        copied.network.load_state_dict(weights)

        @torch.no_grad()
        def run(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            answer = copied(*(torch.from_numpy(given[name]) for name in copied.inputs))
            return {name: array.numpy() for name, array in zip(copied.outputs, answer, strict=True)}

        return run

    def use(self, file: str) -> list[str]:
        """See `Format.use`; without `run` where the network is the user's own."""
        load = ["from safetensors.torch import load_file", "", f'w = load_file(here / "{file}")']
        if not self._program:
            return [*load, "for name, tensor in w.items():", "    print(name, tuple(tensor.shape))"]
        return [*by_hand.IMPORTS, *load, "", "", *self._program]
