"""safetensors: the weights alone, by their names in the network, and the configuration that `pronk.load` needs."""

from __future__ import annotations

import copy
from pathlib import Path

from torch import Tensor

from pronk.config.named import import_extra
from pronk.exports.plain_policy import ArrayFunction, PlainPolicy, as_function


class Safetensors:
    """A `Format`. The file holds no code; its program acts through Pronk."""

    suffix = ".safetensors"
    note = "weights only: load them with pronk.load(FILE); onnx and torchscript run without Pronk"

    def __init__(self, policy: PlainPolicy) -> None:
        self._policy = policy
        import_extra("safetensors", "the safetensors format", "export")

    def write(self, path: Path, example: tuple[Tensor, ...], facts: str) -> None:
        """Write every weight, those of the value head included."""
        from safetensors.torch import save_file

        weights = {name: tensor.contiguous() for name, tensor in self._policy.network.state_dict().items()}
        save_file(weights, path, metadata={"format": "pt", "pronk": facts})

    def open(self, path: Path) -> ArrayFunction:
        """Load the weights into a copy of the network."""
        from safetensors.torch import load_file

        copied = copy.deepcopy(self._policy)
        copied.network.load_state_dict(load_file(path))
        return as_function(copied, copied)

    def program(self, file: str) -> list[str]:
        """See `Format.program`."""
        return [
            "import pronk",
            "",
            f'policy = pronk.load(here / "{file}", deterministic=True)',
            "",
            "",
            "def act(observation, first=False, reward=0.0):",
            "    if first:",
            "        policy.reset()",
            "    return policy.act(observation, reward)",
        ]
