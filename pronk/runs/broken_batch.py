"""A batch that gave a gradient which is not a number: kept for whoever has to find out why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pronk.runs.checkpoint import save_atomically
from pronk.types import Unroll, leaves, map_unroll

if TYPE_CHECKING:
    import torch


def keep_broken_batch(batch: Unroll, network: dict[str, Any], path: Path) -> str:
    """Save it with the weights, and say where it is and what is wrong with it."""
    batch = map_unroll(lambda tensor: tensor.cpu().clone(), batch)  # views of one block cannot be saved
    try:
        save_atomically(path, {"batch": batch._asdict(), "network": network})
        kept = f"The batch and the weights before this update are in {path}"
    except (OSError, RuntimeError) as reason:
        kept = f"The batch could not be saved ({reason})"
    suspects = [name for name, array in leaves(batch._asdict()) if not_finite(array, name)]
    where = f"the batch holds non-finite values in {', '.join(suspects)}" if suspects else "the batch is finite"
    return f"{where}. {kept}"


def not_finite(array: torch.Tensor, name: str) -> bool:
    """Whether a float array has a NaN or an infinity where none belongs (NaN in episode_return means "none")."""
    return name != "episode_return" and array.is_floating_point() and not bool(array.isfinite().all())
