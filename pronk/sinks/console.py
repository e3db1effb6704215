"""Progress on the screen: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pronk.runs.reading import return_text

SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 40
MOST_TASKS = 12  # whose returns are shown
FIRST_LINES = 3  # before the time left is shown
PACE_LINES = 30  # that it is judged by


class Display:
    """A few lines that are redrawn: progress and time left, return, speed, lag, bottleneck."""

    def __init__(self, title: str, total_steps: int, goal: float | None, console: Console) -> None:
        self._title, self._total, self._goal = title, total_steps, goal
        self._returns: list[float] = []
        self._line: dict[str, Any] | None = None
        self._notes: dict[str, str] = {}
        self._time_left, self._left = TimeLeft(), None  # type: tuple[TimeLeft, float | None]
        # No refreshing thread: it is redrawn when a line comes.
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Display:
        self._live.__enter__()
        self._live.update(Text(f" {self._title}: starting the actors ...", "dim"), refresh=True)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._live.__exit__(*exception)

    def write(self, line: dict[str, Any]) -> None:
        """Redraw."""
        if line["episode_return"] is not None and math.isfinite(line["episode_return"]):
            self._returns.append(line["episode_return"])
        self._line, self._left = line, self._time_left.after(line)
        self._live.update(self._picture(line), refresh=True)

    def evaluated(self, line: dict[str, Any]) -> None:
        """Redraw with the newest evaluation."""
        self.note("evaluated", evaluation(line))

    def note(self, name: str, text: str) -> None:
        """Redraw with one more row, or a new text in its row."""
        self._notes[name] = text
        if self._line is not None:
            self._live.update(self._picture(self._line), refresh=True)

    def _picture(self, line: dict[str, Any]) -> Group:
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(self._total, min(line["env_steps"], self._total), width=30)
        head.add_row(Text(f" {self._title}", "bold"), bar, Text(progress(line, self._total, self._left)))
        body = Table.grid(padding=(0, 1))
        body.add_column(style="dim", width=9, justify="right")
        goal = f" of {self._goal:g}" if self._goal is not None else ""
        shown = "none yet" if line["episode_return"] is None else f"{return_text(line['episode_return'])}{goal}"
        body.add_row("return", Text.assemble((f"{shown:<18}", "bold green"), (sparkline(self._returns), "green")))
        if tasks := task_returns(line):
            body.add_row("tasks", Text(tasks, "green"))
        body.add_row("speed", f"{line['steps_per_second']:,.0f} steps/s, {line['updates']:,} updates")
        body.add_row("lag", f"{line['policy_lag'] or 0:.1f} updates, entropy {line['entropy'] or 0:.3f}")
        body.add_row("queue", f"{line['queue']:.0%} full: {who_waits(line)}")
        for name, text in self._notes.items():
            body.add_row(name, Text(text))
        return Group(head, body)


class PlainLines:
    """One line now and then, for logs and pipes; less often as the run gets longer."""

    def __init__(self, title: str, total_steps: int, console: Console) -> None:
        self._title, self._total, self._console = title, total_steps, console
        self._started, self._printed = time.monotonic(), 0.0
        self._time_left = TimeLeft()

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Print the line if it is time for the next one."""
        now, left = time.monotonic(), self._time_left.after(line)
        if now - self._printed < min(30.0, (now - self._started) / 20):
            return
        self._printed = now
        value = return_text(line["episode_return"])
        value += f" ({tasks})" if (tasks := task_returns(line)) else ""
        self._console.print(
            Text(
                f"{self._title}: {progress(line, self._total, left)}, return {value}, "
                f"{line['steps_per_second']:,.0f} steps/s, lag {line['policy_lag'] or 0:.1f}, {who_waits(line)}"
            ),
            soft_wrap=True,
        )

    def evaluated(self, line: dict[str, Any]) -> None:
        """Always printed: there are few."""
        self.note("evaluated", evaluation(line))

    def note(self, name: str, text: str) -> None:
        """Always printed."""
        self._console.print(Text(f"{self._title}: {name}: {text}"), soft_wrap=True)


def task_returns(line: dict[str, Any]) -> str:
    """`pong 20.1, breakout 351.4, ...`; empty if there is one task."""
    prefix = "episode_return/"
    values = {name.removeprefix(prefix): value for name, value in line.items() if name.startswith(prefix)}
    shown = [f"{name} {return_text(value)}" for name, value in values.items()]
    more = [f"and {len(shown) - MOST_TASKS} more"] if len(shown) > MOST_TASKS else []
    return ", ".join(shown[:MOST_TASKS] + more)


def evaluation(line: dict[str, Any]) -> str:
    """`498.7 +- 4.1 over 20 episodes, at 120,000 steps (the best so far)`."""
    best = " (the best so far)" if line["best"] else ""
    mean, std = (return_text(line[name], line["std"]) for name in ("mean", "std"))
    return f"{mean} +- {std} over {line['episodes']} episodes, at {line['env_steps']:,} steps{best}"


def progress(line: dict[str, Any], total: int, left: float | None = None) -> str:
    """`1,000 / 2,000 steps (8,000 frames), 0:12 left`. `left`: seconds, if they are known."""
    frames = f" ({line['frames']:,} frames)" if line["frames"] != line["env_steps"] else ""
    return f"{line['env_steps']:,} / {total:,} steps{frames}{'' if left is None else f', {duration(left)} left'}"


class TimeLeft:
    """Estimates how long a run will still take, from the pace of its last lines."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=PACE_LINES)  # seconds and progress

    def after(self, line: dict[str, Any]) -> float | None:
        """Return the seconds that are left after this line; None before a few lines have come."""
        self._points.append((line["wall_seconds"], line.get("progress") or 0.0))
        (began, before), (now, done) = self._points[0], self._points[-1]
        # The first lines include the start of the actors, and would make the estimate too long.
        if len(self._points) < FIRST_LINES or done <= before:
            return 0.0 if done >= 1 else None
        return max(0.0, 1 - done) * (now - began) / (done - before)


def who_waits(line: dict[str, Any]) -> str:
    """The bottleneck in words."""
    if line["learner_waits"] > 0.1:
        return f"the learner waits for actors {line['learner_waits']:.0%} of the time"
    return "the actors wait for the learner" if line["queue"] > 0.5 else "nobody waits"


def duration(seconds: float) -> str:
    """h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: list[float]) -> str:
    """Draw the history in a few characters."""
    if len(values) < 2:
        return ""
    width = min(SPARK_WIDTH, len(values))
    picked = [values[(i + 1) * len(values) // width - 1] for i in range(width)]  # the newest is always shown
    low, high = min(picked), max(picked)
    scale = (len(SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARKS[round((value - low) * scale)] for value in picked)
