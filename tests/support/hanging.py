"""A loss that hangs once, when a file exists, named in configurations as `hanging:Hangs`."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from pronk.losses.impala import ImpalaLoss


class Hangs(ImpalaLoss):
    """IMPALA's loss. It removes the file when it hangs.

    loss.kwargs:
        file: its path.
        busy: hang in a loop of Python, instead of a call that waits.
        further: hang in a learner other than 0 only.
    """

    def __init__(self, config: Any, *arguments: Any) -> None:
        super().__init__(config, *arguments)
        self._file, self._busy = config.kwargs["file"], config.kwargs.get("busy", False)
        self._may_hang = "pronk.learners.learner_process" in sys.modules or not config.kwargs.get("further", False)

    def __call__(self, *arguments: Any) -> Any:
        if self._may_hang and os.path.exists(self._file):
            os.unlink(self._file)
            self.hang_for_ever()
        return super().__call__(*arguments)

    def hang_for_ever(self) -> None:
        while True:
            if not self._busy:
                time.sleep(1e6)
