"""The learner: batch -> gradient step -> new parameters. Owns the network, the optimiser and the version."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pronk.config import ResolvedConfig
from pronk.device import check_precision
from pronk.losses import make_loss
from pronk.networks import make_network
from pronk.optimisers import make_optimiser
from pronk.parameters import ParameterBlock
from pronk.seeding import learner_seed
from pronk.types import EnvSpec, Failure, Parameters, Unroll, UserError, map_tree


class NonFinite(Failure):
    """A loss or gradient is not a number. Raised before the weights are touched."""

    def __init__(self, what: str, version: int, batch: Unroll) -> None:
        super().__init__(f"{what} after {version:,} updates")
        self.batch = batch


class Learner:
    """Learns from batches."""

    def __init__(self, config: ResolvedConfig, spec: EnvSpec, device: torch.device) -> None:
        check_precision(device, config.learner.precision)
        torch.manual_seed(learner_seed(config.run.seed))
        self.spec, self.device = spec, device
        self.network = make_network(spec, config.network).to(device)
        self._forward = torch.compile(self.network) if config.learner.compile else self.network
        self._precision = getattr(torch, config.learner.precision)
        self._block = ParameterBlock(self.network)
        self._loss = make_loss(config.loss)
        self._optimiser = make_optimiser(self._block.weights, self._block.gradients, config.optimiser)
        self._max_norm = config.optimiser.max_gradient_norm
        self.version = 0

    def step(self, batch: Unroll, learning_rate: float, meanwhile: Callable[[], None]) -> dict[str, float]:
        """One update of a learner that is alone. `meanwhile` runs on the CPU while a GPU is still at work."""
        report = self.gradient(batch, meanwhile)
        self.update(report, learning_rate, batch)
        return report

    def gradient(self, batch: Unroll, meanwhile: Callable[[], None]) -> dict[str, float]:
        """The first half of an update: `gradients`, and what to report about them."""
        self._block.gradients.zero_()
        with torch.autocast(self.device.type, self._precision, enabled=self._precision != torch.float32):
            output = self._forward(batch.observation, batch.first, batch.state)
        acted_on = map_tree(lambda array: array[:-1], batch.observation)
        distribution = self.network.distribution(output.policy[:-1].float(), acted_on)
        terms = self._loss(distribution, output.value.float(), batch)
        terms.total.backward()
        norm = self._block.gradients.norm()
        numbers = torch.stack([terms.total.detach(), norm, *(value.detach() for value in terms.metrics.values())])
        meanwhile()
        return dict(zip(("loss", "gradient_norm", *terms.metrics), numbers.tolist(), strict=True))

    def update(self, report: dict[str, float], learning_rate: float, batch: Unroll) -> None:
        """The second half: new weights, unless something in the report is not a number."""
        self._check(report, batch)
        if self._max_norm is not None and report["gradient_norm"] > self._max_norm:
            self._block.gradients.mul_(self._max_norm / report["gradient_norm"])
        self._optimiser.step(learning_rate)
        self.version += 1

    def parameters(self) -> Parameters:
        """The weights as they are now; a view on a CPU, so copy before the next step."""
        return Parameters(self.version, self._block.bytes().numpy())

    @property
    def parameters_nbytes(self) -> int:
        """Size of a published block."""
        return self._block.nbytes

    @property
    def gradients(self) -> Tensor:
        """Of every weight, one after another; learners that act as one add them up between the halves of an update."""
        return self._block.gradients

    def tensors(self) -> list[Tensor]:
        """All that has to be equal in learners that act as one; to be written to in place."""
        return [self._block.whole, *self._optimiser.state.values()]

    def is_finite(self) -> bool:
        """Whether every weight is a number."""
        return bool(self._block.whole.isfinite().all())

    def state(self) -> dict[str, Any]:
        """All that a checkpoint needs to go on bit for bit."""
        return {
            "network": {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()},
            "optimiser": {name: tensor.clone() for name, tensor in self._optimiser.state.items()},
            "version": self.version,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        try:
            self.network.load_state_dict(state["network"])  # copies into the block's views
            self._optimiser.load_state(state["optimiser"])
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"the checkpoint does not fit this configuration: {reason}") from None
        self.version = state["version"]
        torch.set_rng_state(state["random"].cpu())
        if len(state["random_cuda"]) == torch.cuda.device_count():  # else it was saved on another machine
            torch.cuda.set_rng_state_all([random.cpu() for random in state["random_cuda"]])

    def _check(self, report: dict[str, float], batch: Unroll) -> None:
        broken = [name for name, value in report.items() if not math.isfinite(value)]
        if broken:
            values = ", ".join(f"{name} is {report[name]}" for name in broken)
            raise NonFinite(values, self.version, batch)
