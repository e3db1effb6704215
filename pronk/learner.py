"""The learner: batch -> gradient step -> new parameters. Owns the network, the optimiser and the version."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pronk.config import ResolvedConfig
from pronk.device import check_precision
from pronk.losses import Loss, make_loss
from pronk.losses.replayed import ReplayLoss
from pronk.networks import Network, Output, make_network
from pronk.networks.on_threads import NetworkOnThreads
from pronk.networks.target import TargetNetwork
from pronk.optimisers import KlBrake, make_optimiser
from pronk.parameters import ParameterBlock, is_measured
from pronk.runs.checkpoint import checked_content
from pronk.seeding import learner_seed
from pronk.types import EnvSpec, Failure, Parameters, Unroll, map_tree

Report = dict[str, float]


class NonFinite(Failure):
    """A loss or gradient is NaN or infinite. Raised before the weights are changed."""

    def __init__(self, what: str, version: int, batch: Unroll) -> None:
        super().__init__(f"{what} after {version:,} updates")
        self.batch = batch


class Learner:
    """Learns from batches, one gradient step each.

    A single learner needs only `step`. Learners that act as one pass `combine`, which adds up `gradients` over all of
    them between the two halves of a step; or they call the halves themselves.
    """

    def __init__(self, config: ResolvedConfig, spec: EnvSpec, device: torch.device) -> None:
        check_precision(device, config.learner.precision)
        torch.manual_seed(learner_seed(config.run.seed))
        self.spec, self.device = spec, device
        self.network = make_network(spec, config.network).to(device)
        self._target: TargetNetwork | None = None
        if config.loss.target_updates:
            self._target = TargetNetwork(self.network, config.loss.target_updates)
        self._autocast: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
        if config.learner.precision != "float32":
            precision = getattr(torch, config.learner.precision)
            self._autocast = functools.partial(torch.autocast, device.type, precision)
        self._forward = forward_of(self.network, config, device, self._autocast)
        self.threads = 1 if isinstance(self._forward, NetworkOnThreads) else config.learner.threads
        """That one operation of torch may use, in the learner's process."""
        self._block = ParameterBlock(self.network)
        self.loss: Loss = make_loss(config.loss)
        self.replay_loss: ReplayLoss | None = None
        if config.replay.size:
            fresh = config.learner.batch_size
            self.loss = self.replay_loss = ReplayLoss(self.loss, config.loss, config.replay, fresh)
        self._loss_is_mean = config.loss.reduction == "mean"
        self._optimiser = make_optimiser(self._block.weights, self._block.gradients, config.optimiser)
        self._brake = KlBrake(config.loss.max_kl, device)
        self._max_norm = config.optimiser.max_gradient_norm
        self.version = 0

    def step(
        self,
        batch: Unroll,
        learning_rate: float,
        meanwhile: Callable[[], None] = lambda: None,
        combine: Callable[[Report], Report] = lambda report: report,
    ) -> Report:
        """Make one update from a batch, and return its metrics.

        Args:
            batch: tensors on the learner's device.
            learning_rate: of this update, before `loss.max_kl`.
            meanwhile: runs on the CPU while a GPU computes the gradient.
            combine: turns `gradients` and the report into those of all learners.

        Raises:
            NonFinite: a loss or gradient is NaN or infinite; nothing was changed.
        """
        report = combine(self.gradient(batch, meanwhile) | {"learning_rate": learning_rate * self._brake.factor})
        # `combine` returns the mean of all learners' rates. Each may have another rate, because a schedule may follow
        # the clock; but all must make the same update, or their weights would differ.
        self.update(report, report["learning_rate"], batch)
        self._brake.observe(report.get("kl", 0.0))
        return report

    def gradient(self, batch: Unroll, meanwhile: Callable[[], None]) -> Report:
        """Compute the gradient: the first half of a step. Returns the report."""
        self._block.summed.zero_()
        for statistics in self._block.statistics:
            statistics.is_due = is_measured(self.version)
        with self._autocast():
            output = self._forward(batch.observation, batch.first, batch.state)
        acted_on = map_tree(lambda array: array[:-1], batch.observation)
        distribution = self.network.distribution(output.policy[:-1].float(), acted_on)
        value = self.network.value(output.value.float(), batch.task)
        if self._target:
            self.loss.target_log_prob = self._target.log_prob(batch)
        terms = self.loss(distribution, value, batch)
        terms.total.backward()
        self._observe(batch)
        norm = self._block.gradients.norm()
        numbers = torch.stack([terms.total.detach(), norm, *(value.detach() for value in terms.metrics.values())])
        meanwhile()
        return dict(zip(("loss", "gradient_norm", *terms.metrics), numbers.tolist(), strict=True))

    def update(self, report: Report, learning_rate: float, batch: Unroll) -> None:
        """Change weights and statistics: the second half of a step. Puts the norm to clip by into `report`."""
        due = [statistics for statistics in self._block.statistics if statistics.is_due]
        if due:  # several learners measured the norm with their sums; clip by the gradient's alone
            report["gradient_norm"] = float(self._block.gradients.norm())
        self._check(report, batch)
        if self._max_norm is not None and report["gradient_norm"] > self._max_norm:
            self._block.gradients.mul_(self._max_norm / report["gradient_norm"])
        self._optimiser.step(learning_rate)
        with torch.no_grad():
            for statistics in due:
                statistics.update()
        self.version += 1
        if self._target:
            self._target.follow(self._block.values, self.version)

    def parameters(self) -> Parameters:
        """Return the current weights and buffers. On a CPU it is a view: copy it before the next step."""
        return Parameters(self.version, self._block.bytes())

    @property
    def gradients(self) -> Tensor:
        """What learners that act as one add up between the halves of a step, weighted by their valid steps.

        The gradient of every weight, then the sums of the network's statistics, in one vector.
        """
        return self._block.summed

    def tensors(self) -> list[Tensor]:
        """Return all that must be equal in learners that act as one; may be overwritten in place."""
        target = [self._target.values] if self._target else []
        return [self._block.values, *target, self._brake.values, *self._optimiser.state.values()]

    def is_finite(self) -> bool:
        """Return whether every weight and buffer is finite."""
        return bool(self._block.values.isfinite().all())

    def state(self) -> dict[str, Any]:
        """Return a copy of all that a checkpoint needs to continue bit for bit."""
        return {
            "network": {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()},
            "optimiser": {name: tensor.clone() for name, tensor in self._optimiser.state.items()},
            "target": self._target.values.clone() if self._target else None,
            "brake": self._brake.values.clone(),
            "version": self.version,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_target(self, saved: Tensor | None) -> None:
        """Set the target network, if there is one, as `state` has it. None: the run had none; copy the weights."""
        if self._target:
            self._target.values.copy_(self._block.values if saved is None else saved)

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned. Raises UserError if it is of another network or optimiser."""
        with checked_content("this configuration"):
            self.network.load_state_dict(state["network"])  # copies into the block's views
            self._optimiser.load_state(state["optimiser"])
            self.version = state["version"]
            if "brake" in state:
                self._brake.values.copy_(state["brake"])
            self.load_target(state.get("target"))
            torch.set_rng_state(state["random"].cpu())
            if len(state["random_cuda"]) == torch.cuda.device_count():  # else it was saved on another machine
                torch.cuda.set_rng_state_all([random.cpu() for random in state["random_cuda"]])

    @torch.no_grad()
    def _observe(self, batch: Unroll) -> None:
        """Complete the sums of the network's statistics, and reduce them as the loss is reduced."""
        if not any(statistics.is_due for statistics in self._block.statistics):
            return
        self.network.observe(batch)
        if self._loss_is_mean:  # learners weigh all that they add up by their share of the valid steps
            self._block.sums.div_(batch.valid.sum().clamp(min=1))

    def _check(self, report: Report, batch: Unroll) -> None:
        broken = [name for name, value in report.items() if not math.isfinite(value)]
        if broken:
            values = ", ".join(f"{name} is {report[name]}" for name in broken)
            raise NonFinite(values, self.version, batch)


def forward_of(
    network: Network, config: ResolvedConfig, device: torch.device, context: Callable[[], Any]
) -> Callable[..., Output]:
    """Return what computes the network's outputs in the learner: itself, compiled, or on several threads."""
    if config.learner.compile:
        return torch.compile(network)
    # Without convolutions an update is too short: it would take longer to divide it. transport=local is one thread.
    is_long = any(isinstance(module, nn.Conv2d) for module in network.modules())
    if is_long and config.learner.threads > 1 and device.type == "cpu" and config.transport.name != "local":
        return NetworkOnThreads(network, config.learner.threads, context)
    return network
