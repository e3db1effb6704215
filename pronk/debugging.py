"""Re-runs a learner step whose loss or gradient was not finite, and names the tensors that are not finite.

A step goes through weights and batch, the network's modules, the loss, and back through the modules. The first tensor
that is not finite is the one to look at: those after it may only have inherited it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pronk.config import load_config, resolve
from pronk.config.resolved import Rank
from pronk.envs.probing import spec_of
from pronk.learner import Learner
from pronk.runs.broken_batch import broken_batch_file, not_finite
from pronk.runs.directory import find_run
from pronk.runs.trust import code_to_train, require_known
from pronk.types import Unroll, UserError, leaves


class Broken(NamedTuple):
    """A tensor that is not finite."""

    where: str
    """`weights`, `batch`, `forward`, `loss` or `backward`."""
    name: str
    """Such as `reward`, or the output of a module."""
    shape: tuple[int, ...]
    values: int
    """How many are not finite."""
    first: tuple[int, ...]
    """Index of the first of them."""
    value: float
    """The first of them."""

    def __str__(self) -> str:
        if not self.shape:
            return f"{self.where}: {self.name} is {self.value}"
        of = f"{self.values:,} of {math.prod(self.shape):,} values"
        return f"{self.where}: {self.name} {list(self.shape)}: {of}, the first is {self.value} at {list(self.first)}"


class StepReport(NamedTuple):
    """What a learner step did when it was run again."""

    file: Path
    version: int
    """Updates before it."""
    steps: int
    columns: int
    broken: list[Broken]
    """In the order in which they were computed. Empty: the step is finite here."""
    report: dict[str, float]
    """The loss and the other figures of the step."""
    largest: dict[str, float]
    """The largest absolute value of each array of the batch, greatest first."""


def debug(run: str | Path, *, learner: int = 0, trust: bool = False) -> StepReport:
    """Repeat the learner step that a run saved because its loss or gradient was not finite.

    Args:
        run: its directory, its name under runs/, or `last`.
        learner: which of several learners had the batch.
        trust: import the code that somebody else's run names.

    Raises:
        UserError: the run has saved no such step, or its file or code cannot be read.
    """
    folder = find_run(str(run)).path
    file = broken_batch_file(folder, learner)
    kept = load_kept(folder, learner)
    config = load_config(folder / "config.yaml")
    require_known(code_to_train(config), str(run), trust)
    count = 1 if config.learners.count == "auto" else config.learners.count
    resolved = resolve(config, Rank(learner, count)).replace({"learner.compile": False})
    again = Learner(resolved, spec_of(config, lambda line: None), torch.device("cpu"))
    try:
        again.network.load_state_dict(kept["network"])
        again.load_target(kept.get("target"))
        batch = Unroll(**kept["batch"])
    except (RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{broken_batch_file(folder, learner)} does not fit the run's configuration: {reason}"
        ) from None
    again.version = kept.get("version", 0)
    again.loss.entropy_cost, again.loss.barrier_cost = kept.get("entropy_cost", 0.0), kept.get("barrier_cost", 0.0)
    if again.replay_loss:
        again.replay_loss.recorded = kept.get("recorded")
    broken, report = trace(again, batch)
    steps, columns = batch.reward.shape
    return StepReport(file, again.version, steps, columns, broken, report, largest_of(batch))


def load_kept(run: Path, rank: int) -> dict[str, Any]:
    """Return what a learner saved of a step whose loss or gradient was not finite."""
    path = broken_batch_file(run, rank)
    if not path.exists():
        others = [one.name for one in sorted(run.glob("broken_batch*.pt"))]
        which = f"; it has {', '.join(others)}: choose one with --learner" if others else ""
        raise UserError(f"{run} has no {path.name}: no update of this learner was ever broken{which}")
    try:
        kept = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(kept, dict) or not {"batch", "network"} <= kept.keys():
            raise ValueError("it is not a saved batch")
    except Exception as error:  # a torn or foreign file can fail in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} cannot be read ({reason})") from None
    return kept


def trace(learner: Learner, batch: Unroll) -> tuple[list[Broken], dict[str, float]]:
    """Run the first half of a step. Returns the tensors that were not finite, in order, and the step's report."""
    found: list[Broken] = []

    def note(where: str, name: str, tensor: Tensor) -> None:
        bad = ~tensor.detach().isfinite()
        if tensor.is_floating_point() and bool(bad.any()):
            first = tuple(bad.nonzero()[0].tolist())
            found.append(Broken(where, name, tuple(tensor.shape), int(bad.sum()), first, float(tensor.detach()[first])))

    for name, tensor in learner.network.state_dict().items():
        note("weights", name, tensor)
    for name, tensor in leaves(batch._asdict()):
        if not_finite(tensor, name):
            note("batch", name, tensor)
    hooks = [
        module.register_forward_hook(partial(watch_output, note, name or "the network"))
        for name, module in learner.network.named_modules()
    ]
    try:
        report = learner.gradient(batch, lambda: None)
    finally:
        for hook in hooks:
            hook.remove()
    terms = {name: value for name, value in report.items() if name not in ("loss", "gradient_norm")}  # of the loss
    terms["loss"] = report["loss"]
    broken_terms = [Broken("loss", name, (), 1, (), value) for name, value in terms.items() if not math.isfinite(value)]
    backward = next((index for index, one in enumerate(found) if one.where == "backward"), len(found))
    for name, parameter in learner.network.named_parameters():
        if parameter.grad is not None:
            note("backward", f"gradient of {name}", parameter.grad)
    return found[:backward] + broken_terms + found[backward:], report


def watch_output(
    note: Callable[[str, str, Tensor], None], name: str, module: nn.Module, inputs: Any, output: Any
) -> None:
    """Check what a module returns, and later the gradient that comes back to it."""
    for path, tensor in leaves(output._asdict() if hasattr(output, "_asdict") else output):
        if not isinstance(tensor, Tensor):
            continue
        label = f"output of {name} ({type(module).__name__}{f', {path}' if path else ''})"
        note("forward", label, tensor)
        if tensor.requires_grad:
            tensor.register_hook(partial(note, "backward", f"gradient of the {label}"))


def largest_of(batch: Unroll) -> dict[str, float]:
    """Return the largest absolute value of each array of real numbers."""
    arrays = {name: tensor for name, tensor in leaves(batch._asdict()) if tensor.is_floating_point() and tensor.numel()}
    largest = {name: float(tensor.nan_to_num(nan=0.0, posinf=math.inf).abs().max()) for name, tensor in arrays.items()}
    return dict(sorted(largest.items(), key=lambda item: -item[1]))
