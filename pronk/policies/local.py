"""Acts in the actor's own process: in NumPy if the network is small (`numpy_mlp.py`), else in torch."""

from __future__ import annotations

from typing import Any

from pronk.config import ResolvedConfig
from pronk.policies.base import Inference, Policy
from pronk.policies.numpy_mlp import NumpyPolicy, small_mlp
from pronk.processes.supervisor import Start
from pronk.types import EnvSpec, PlainMlp


class LocalInference(Inference):
    """Nothing is shared: each actor reads the parameters from its port."""

    @staticmethod
    def policy(config: ResolvedConfig, spec: EnvSpec, seed: int, ticket: dict[str, Any]) -> Policy:
        """See `Inference.policy`. With a small network, the actor's process imports no torch."""
        if ticket.get("mlp"):
            return NumpyPolicy(PlainMlp(**ticket["mlp"]), spec, seed)
        from pronk.networks import make_network
        from pronk.policies.torch_policy import TorchPolicy

        network = make_network(spec, config.network)
        mlp = small_mlp(network, config.actors.envs)
        return NumpyPolicy(mlp, spec, seed) if mlp else TorchPolicy(network, config.actors.envs, seed)

    def connect(self, actor: int) -> Start:
        """See `Inference.connect`."""
        return Start({"mlp": self._setup.mlp._asdict()} if self._setup.mlp else {})
