"""Saves a batch whose loss or gradient was not finite, for debugging."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pronk.runs.checkpoint import save_tensors
from pronk.types import Unroll, leaves, map_unroll

if TYPE_CHECKING:
    import torch


def save_broken_batch(batch: Unroll, before: dict[str, Any], path: Path) -> str:
    """Save the batch with the learner's state before its update.

    Returns which of its arrays are not finite, and where it is. A reader loads it with `torch.load(path,
    weights_only=True)`: {"batch": {field: tensor}, "network": weights, ...}. `pronk debug RUN` does.
    """
    batch = map_unroll(lambda tensor: tensor.cpu().clone(), batch)  # views of one block cannot be saved
    try:
        save_tensors(path, {"batch": batch._asdict(), **before})
        saved = f"the batch and the weights before this update are in {path} (pronk debug {path.parent})"
    except (OSError, RuntimeError) as reason:
        saved = f"the batch could not be saved ({reason})"
    suspects = [name for name, array in leaves(batch._asdict()) if not_finite(array, name)]
    where = f"the batch holds non-finite values in {', '.join(suspects)}" if suspects else "the batch is finite"
    return f"{where}; {saved}"


def not_finite(array: torch.Tensor, name: str) -> bool:
    # NaN in episode_return means "no episode ended here", in info that the environment gave no such number.
    may_be = name == "episode_return" or name.startswith("info/")
    return not may_be and array.is_floating_point() and not bool(array.isfinite().all())


def keep_broken_batch(
    error: Exception, batch: Unroll, before: dict[str, Any], run: Path, rank: int, broken: Sequence[int]
) -> str:
    """Save the batch that led to `error`, and return the message for the user.

    Args:
        error: says what is not finite.
        batch: as the learner got it.
        before: of the learner, before this update: its weights under `network`, and what else the step depends on.
        run: the run directory.
        rank: of this learner.
        broken: ranks of the learners whose loss or gradient was not finite; empty if there is one learner.
    """
    if broken and rank not in broken:
        others = ", ".join(map(str, broken))
        return f"{error}, in learner {others}, whose log says more; no weights were touched"
    kept = save_broken_batch(batch, before, broken_batch_file(run, rank))
    return f"{error}; {kept}; a smaller optimiser.learning_rate or optimiser.max_gradient_norm often helps"


def broken_batch_file(run: Path, rank: int = 0) -> Path:
    """Return where the learner of a rank saves its broken batch."""
    return run / (f"broken_batch-learner-{rank:03d}.pt" if rank else "broken_batch.pt")
