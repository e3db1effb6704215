"""Progress in a notebook: one picture that is redrawn, not a flood of lines. For Jupyter and what uses its kernel."""

from __future__ import annotations

import html
import math
import sys
from typing import Any

from pronk.runs.reading import return_text
from pronk.sinks.console import TimeLeft, evaluation, progress, task_returns, who_waits

WIDTH, HEIGHT = 480, 120  # of the curve, in pixels
MOST_POINTS = 300  # of the curve; when there are more, every second one is dropped


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules or "google.colab" in sys.modules


class NotebookDisplay:
    """A sink that draws the return over the steps, and the progress in a few rows."""

    def __init__(self, title: str, total_steps: int, goal: float | None) -> None:
        self._title, self._total, self._goal = title, total_steps, goal
        self._points: list[tuple[float, float]] = []  # steps and return
        self._time_left, self._left = TimeLeft(), None  # type: tuple[TimeLeft, float | None]
        self._line: dict[str, Any] | None = None
        self._notes: dict[str, str] = {}
        self._handle: Any = None

    def __enter__(self) -> NotebookDisplay:
        from IPython.display import HTML, display

        self._html = HTML
        self._handle = display(HTML(self.picture()), display_id=True)
        return self

    def __exit__(self, *_: object) -> None: ...

    def write(self, line: dict[str, Any]) -> None:
        """Redraw."""
        value = line["episode_return"]
        if value is not None and math.isfinite(value):
            self._points.append((line["env_steps"], value))
            if len(self._points) > MOST_POINTS:
                del self._points[1:-1:2]
        self._line, self._left = line, self._time_left.after(line)
        self._redraw()

    def evaluated(self, line: dict[str, Any]) -> None:
        """Redraw with the newest evaluation."""
        self._notes["evaluated"] = evaluation(line)
        self._redraw()

    def _redraw(self) -> None:
        if self._handle is not None:  # None where nothing shows pictures, as in a test
            self._handle.update(self._html(self.picture()))

    def picture(self) -> str:
        """Return what is shown, as HTML. Colours are those of the page, so it suits light and dark themes."""
        line = self._line
        if line is None:
            return f"<pre>{html.escape(self._title)}: starting the actors ...</pre>"
        goal = f" of {self._goal:g}" if self._goal is not None else ""
        rows = {
            "steps": progress(line, self._total, self._left),
            "return": f"{return_text(line['episode_return'])}{goal}",
            **({"tasks": tasks} if (tasks := task_returns(line)) else {}),
            "speed": f"{line['steps_per_second']:,.0f} steps/s; {who_waits(line)}",
            **self._notes,
        }
        cells = "".join(
            f"<tr><td style='text-align:right;opacity:.6'>{name}</td>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in rows.items()
        )
        return f"<b>{html.escape(self._title)}</b>{self.curve()}<table>{cells}</table>"

    def curve(self) -> str:
        """Return the learning curve as SVG; nothing before it has two points."""
        if len(self._points) < 2:
            return ""
        steps, values = zip(*self._points, strict=True)
        low, high = min(values), max(values)
        span, last = (high - low) or 1.0, max(steps) or 1
        points = " ".join(
            f"{WIDTH * x / last:.1f},{HEIGHT - (HEIGHT - 4) * (y - low) / span - 2:.1f}" for x, y in self._points
        )
        labels = "".join(
            f"<text x='2' y='{y}' font-size='10' fill='currentColor' opacity='.6'>{return_text(value)}</text>"
            for value, y in ((high, 11), (low, HEIGHT - 3))
        )
        return (
            f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' style='display:block' role='img' "
            f"aria-label='return over steps'><polyline points='{points}' fill='none' stroke='currentColor' "
            f"stroke-width='1.5'/>{labels}</svg>"
        )
