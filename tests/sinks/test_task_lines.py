"""What people see of several tasks: the live display, plain lines and TensorBoard."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pronk.metrics import Metrics
from pronk.sinks.console import MOST_TASKS, Display, PlainLines, task_returns
from pronk.sinks.tensorboard import TensorBoard

LINE = Metrics(1, ("easy", "hard")).line() | {"episode_return/easy": 12.34, "env_steps": 100}


def test_returns_of_tasks_in_words() -> None:
    assert task_returns(LINE) == "easy 12.3, hard -"
    assert task_returns(Metrics(1).line()) == ""
    many = {f"episode_return/{number}": 1.0 for number in range(MOST_TASKS + 5)}
    assert task_returns(many).endswith("and 5 more")


def test_both_displays_show_them() -> None:
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), width=120, force_terminal=is_terminal, no_color=True)
        with Display("x", 1000, None, console) if is_terminal else PlainLines("x", 1000, console) as display:
            display.write(LINE)
        assert "easy 12.3, hard -" in console.file.getvalue()  # type: ignore[attr-defined]


def test_tensorboard_has_a_curve_for_each_task(tmp_path: Path) -> None:
    with TensorBoard(tmp_path, 0) as board:
        board.write(LINE)
        board.evaluated({"env_steps": 100, "mean": 3.0, "mean/easy": 2.0, "mean/hard": 4.0, "checkpoint": "a.pt"})
    read = EventAccumulator(str(tmp_path)).Reload()
    assert read.Scalars("train/episode_return/easy")[0].value > 12
    assert [read.Scalars(f"eval/mean{name}")[0].value for name in ("", "/easy", "/hard")] == [3.0, 2.0, 4.0]
