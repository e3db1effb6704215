"""A loss that sees, from the numbers of `stamped.py`, whether an unroll is missing or learnt twice."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from stamped import CLOCK

from pronk.losses.impala import ImpalaLoss

REPORT = "PRONK_CHAOS_REPORT"
"""Environment variable: the file to which missing unrolls are written."""


class OnceEach(ImpalaLoss):
    """IMPALA's loss. Fails if an unroll is learnt twice; writes down where one is missing.

    An update that the loss of a learner interrupts is made again, so the same batch may come twice in a row. Then the
    weights are still those of the first try, and so are values and policy. If they differ, the first update was made.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._learnt: dict[bytes, int] = {}  # the clock at the last unroll of each environment
        self._previous, self._output = b"", torch.empty(0)

    def __call__(self, distribution: Any, value: Any, batch: Any) -> Any:
        first = batch.observation[0, :, 1:].cpu().numpy()
        output = torch.cat([value.estimate.detach().flatten(), distribution.entropy().detach().flatten()])
        if first.tobytes() != self._previous:
            self._previous, self._output = first.tobytes(), output
            for column in first:
                self._note(column[:2].tobytes(), round(float(column[2]) / CLOCK), batch.reward.shape[0])
        elif not torch.equal(output, self._output):
            raise RuntimeError("a batch was learnt twice in a row: it comes again after its update was made")
        return super().__call__(distribution, value, batch)

    def _note(self, environment: bytes, clock: int, length: int) -> None:
        before = self._learnt.get(environment)
        self._learnt[environment] = clock
        if before is None or clock == before + length:
            return
        if clock <= before:
            raise RuntimeError(f"an unroll was learnt twice: step {clock} after {before}")
        with open(os.environ[REPORT], "a", encoding="utf-8") as file:
            file.write(json.dumps({"pid": os.getpid(), "lost": (clock - before) // length - 1}) + "\n")
