"""The checkpoints of a run: the last K, and the best.

    checkpoints/000000123456.pt    named after its environment steps; a resumed run continues from the newest
    checkpoints/best.pt            the one with the highest return (of the evaluator, where there is one)
    checkpoints/evaluating.pt      a second name of the one that the evaluator plays now, which keeps it from deletion
    checkpoints/filming.pt         likewise of the one that is being filmed

A checkpoint holds tensors and plain data only, and is read without unpickling arbitrary objects.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pronk.runs.atomic import atomic_file, replace_with_copy
from pronk.runs.sealed import SealedFile, check_archive
from pronk.types import UserError

FORMAT = 1  # raise it when a checkpoint's content changes
OWN = ("version", "random", "random_cuda")  # what a learner keeps when it takes over another's weights
PARTS = ("learner", "metrics", "config")
Held = Literal["evaluating", "filming"]


class Checkpoints:
    """The folder of a run's checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best = folder / "best.pt"

    def save(self, state: dict[str, Any], keep: int, best: bool = False) -> Path:
        """Write a checkpoint and delete the oldest beyond `keep`; the one before stays until the new one is complete.

        `state["metrics"]["env_steps"]` gives its name. With `best` it also becomes best.pt.
        """
        path = self.folder / f"{state['metrics']['env_steps']:012d}.pt"
        save_tensors(path, {"format": FORMAT, **state})
        if best:
            replace_with_copy(path, self.best)
        for old in self.saved()[:-keep]:
            old.unlink()
        return path

    def save_best(self, state: dict[str, Any]) -> None:
        """Write best.pt alone."""
        save_tensors(self.best, {"format": FORMAT, **state})

    def best_standing(self) -> tuple[bool, float]:
        """Return the standing of best.pt (see `Metrics.standing`). It may be newer than all other checkpoints."""
        try:
            return tuple(load_checkpoint(self.best)["best"])
        except (UserError, LookupError):  # there is none yet, or it cannot be read
            return False, -math.inf

    def saved(self) -> list[Path]:
        """The last K, oldest first."""
        return sorted(path for path in self.folder.glob("*.pt") if re.fullmatch(r"\d+", path.stem))

    def newest(self) -> Path:
        saved = self.saved()
        if not saved:
            raise UserError(f"{self.folder.parent} has no checkpoint yet")
        return saved[-1]

    def restore(self) -> tuple[dict[str, Any], dict[Path, str]]:
        """The content of the newest checkpoint that can be read, and what is wrong with each newer one."""
        problems: dict[Path, str] = {}
        self.newest()
        for path in reversed(self.saved()):
            try:
                return load_checkpoint(path), problems
            except UserError as error:
                problems[path] = str(error)
        raise UserError(f"{self.folder.parent}: no checkpoint can be read: {'; '.join(problems.values())}")

    def take_over(self, source: Path) -> Path:
        """Write a checkpoint with what another run has learnt, and this run's own counters and random numbers.

        Weights, optimiser and the latest returns are those of `source`, a checkpoint with the same network and
        optimiser. A run without a checkpoint takes over the counters too.
        """
        theirs = load_checkpoint(source)
        if not self.saved():
            return self.save(theirs | {"best": (False, -math.inf)}, keep=1)
        own, _ = self.restore()
        learner = theirs["learner"] | {name: own["learner"][name] for name in OWN}
        metrics = own["metrics"] | {"returns": theirs["metrics"]["returns"], "confirmed": None}
        return self.save(own | {"learner": learner, "metrics": metrics}, keep=len(self.saved()))

    def hold(self, checkpoint: Path, held: Held) -> Path:
        """Keep a checkpoint while it is played, even if `save` deletes its first name. One at a time for each use."""
        replace_with_copy(checkpoint, self.folder / f"{held}.pt")
        return self.folder / f"{held}.pt"

    def release(self, held: Held, best: bool = False) -> None:
        """Stop holding a checkpoint; with `best` it becomes best.pt."""
        if best:
            os.replace(self.folder / f"{held}.pt", self.best)
        else:
            (self.folder / f"{held}.pt").unlink(missing_ok=True)


class DamagedCheckpoint(UserWarning):
    """The newest checkpoint cannot be used, and an older one is."""


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint: plain data, and tensors on the CPU.

    Raises:
        UserError: it is not a checkpoint of this version, or damaged.
    """
    import torch

    try:
        check_archive(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a torn or foreign file can fail in any way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} cannot be read ({reason})") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else None
        raise UserError(f"{path} has checkpoint format {found}; this version of Pronk reads format {FORMAT}")
    if missing := [part for part in PARTS if not isinstance(state.get(part), dict)]:
        raise UserError(f"{path} is not a checkpoint of Pronk: it has no {' and no '.join(missing)}")
    return state


@contextlib.contextmanager
def checked_content(expected: str) -> Iterator[None]:
    """Raise UserError if content of a checkpoint that is used here does not fit, or was not written by Pronk."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise UserError(f"the checkpoint does not fit {expected}: {reason}") from None


def save_tensors(path: Path, state: dict[str, Any]) -> None:
    import torch

    with atomic_file(path) as file:
        sealed = SealedFile(file)
        torch.save(state, sealed)  # type: ignore[arg-type]  # it can only be written to
        sealed.seal()
