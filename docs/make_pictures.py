"""Makes the pictures in the README from real runs: `python docs/make_pictures.py`."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

import pronk
import pronk.cli.train
from pronk.plotting import plot
from pronk.sinks.console import Display
from pronk.watching import watch

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
    pronk.cli.train.out = console
    pronk.cli.train.show_summary({**summary, "run": "runs/cartpole"}, "pronk train runs/cartpole --resume")
    console.save_svg(str(PICTURES / "cartpole.svg"), title="pronk")


def curves_and_play() -> None:
    """What `pronk plot runs` draws of two learning rates with three seeds each, and `pronk watch` of one agent."""
    long = ["run.stop_return=null", "run.total_steps=600000", "run.log_every_seconds=0.2"]
    with tempfile.TemporaryDirectory() as folder:
        for rate in ("1e-3", "3e-4"):
            for seed in (1, 2, 3):
                config = pronk.load_config("cartpole", [*long, f"optimiser.learning_rate={rate}", f"run.seed={seed}"])
                pronk.train(config, run_dir=Path(folder) / f"{rate}-{seed}")
        plot(folder, PICTURES / "plot-cartpole.png")
        watch(Path(folder) / "1e-3-1", PICTURES / "watch-cartpole.gif", episodes=4, width=360, steps=140)


if __name__ == "__main__":
    solved_cartpole()
    curves_and_play()
