"""Makes the pictures in the README from real runs: `python docs/make_pictures.py`."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

import pronk
from pronk import cli
from pronk.sinks.console import Display

PICTURES = Path(__file__).parent / "pictures"


class Recorder(Display):
    """The live display, keeping only its last picture."""

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exception: Any) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Redraw in memory."""
        self._returns.append(line["episode_return"] or 0.0)
        self.picture = self._picture(line)


def solved_cartpole() -> None:
    """What `pronk train cartpole` shows when it has solved it."""
    config = pronk.load_config("cartpole", ["run.log_every_seconds=0.1"])
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True)
    recorder = Recorder("cartpole", config.run.total_steps, config.run.stop_return, console)
    with tempfile.TemporaryDirectory() as folder:
        summary = pronk.train(config, run_dir=Path(folder) / "run", display=recorder)
    console.print("[bold]$ pronk train cartpole[/]")
    console.print(recorder.picture)
    cli.out = console
    cli.show_summary({**summary, "run": "runs/cartpole"})
    console.save_svg(str(PICTURES / "cartpole.svg"), title="pronk")


if __name__ == "__main__":
    solved_cartpole()
