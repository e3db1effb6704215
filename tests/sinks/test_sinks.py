"""Every sink takes every line that training can give it, and what it writes can be read by others."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from processes import command_line, read_metrics, refuse
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pronk.metrics import Metrics
from pronk.sinks import Sink
from pronk.sinks.console import Display, PlainLines, duration, sparkline
from pronk.sinks.jsonl import JsonLines
from pronk.sinks.notebook import MOST_POINTS, NotebookDisplay, in_notebook
from pronk.sinks.tensorboard import TensorBoard

CONTRACT = {
    *("wall_seconds", "env_steps", "frames", "updates", "episodes", "episode_return", "episode_length"),
    *("steps_per_second", "policy_lag", "loss", "entropy", "gradient_norm", "learning_rate", "learner_waits", "queue"),
}


def line(**changes: Any) -> dict[str, Any]:
    """Of a run under way."""
    whole = dict.fromkeys(sorted(CONTRACT), 0.5) | {"env_steps": 1500, "frames": 6000, "updates": 3, "episodes": 12}
    return whole | {"episode_return": 21.5, "steps_per_second": 1000.0} | changes


ODD_LINES = {
    "under way": line(),
    "before the first update": Metrics(1).line(),
    "no episode yet": line(episode_return=None, episode_length=None),
    "not a number": line(loss=math.nan),
    "infinite": line(episode_return=math.inf),
    "minus infinity": line(episode_return=-math.inf, loss=-math.inf),
    "standing still": line(steps_per_second=0.0),
    "beyond the end": line(env_steps=10**12),
}
SINKS = ("jsonl", "tensorboard", "display", "plain")


def make(kind: str, path: Path, shown: io.StringIO) -> Sink:
    console = Console(file=shown, force_terminal=kind == "display", width=120)
    match kind:
        case "jsonl":
            return JsonLines(path / "metrics.jsonl")
        case "tensorboard":
            return TensorBoard(path, 0)
        case "display":
            return Display("catch", 2000, 0.95, console)
    return PlainLines("catch", 2000, console)


@pytest.mark.parametrize("name", ODD_LINES)
@pytest.mark.parametrize("kind", SINKS)
def test_every_sink_takes_every_line(kind: str, name: str, tmp_path: Path) -> None:
    shown = io.StringIO()
    with make(kind, tmp_path, shown) as sink:
        for _ in range(3):
            sink.write(line())
            sink.write(ODD_LINES[name])
    assert shown.getvalue() or any(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.parametrize("name", ODD_LINES)
def test_json_lines_are_strict_json(name: str, tmp_path: Path) -> None:
    with JsonLines(tmp_path / "metrics.jsonl") as sink:
        sink.write(ODD_LINES[name])
    [text] = (tmp_path / "metrics.jsonl").read_text().splitlines()
    found = json.loads(text, parse_constant=refuse)
    assert found.keys() == ODD_LINES[name].keys()
    for key, value in ODD_LINES[name].items():
        assert found[key] == (value if value is not None and math.isfinite(value) else None)


def test_json_lines_are_there_at_once_and_appended_to(tmp_path: Path) -> None:
    for updates in (1, 2):
        with JsonLines(tmp_path / "metrics.jsonl") as sink:
            sink.write(line(updates=updates))
            assert [found["updates"] for found in read_metrics(tmp_path)] == list(range(1, updates + 1))


def test_curves_can_be_read_by_tensorboard(tmp_path: Path) -> None:
    with TensorBoard(tmp_path, 0) as sink:
        sink.write(line(env_steps=100, episode_return=None))
        sink.write(line(env_steps=200, episode_return=3.0))
    curves = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in curves.Scalars("train/episode_return")] == [(200, 3.0)]
    assert [event.step for event in curves.Scalars("train/loss")] == [100, 200]


def test_resumed_curves_hide_what_lies_beyond_the_step_they_go_on_from(tmp_path: Path) -> None:
    with TensorBoard(tmp_path, 0) as sink:
        for steps in (100, 200, 300):
            sink.write(line(env_steps=steps, loss=1.0))
    time.sleep(1.1)  # a file's name begins with its second, and files are read in the order of their names
    with TensorBoard(tmp_path, 200) as sink:
        sink.write(line(env_steps=250, loss=2.0))
    curve = EventAccumulator(str(tmp_path)).Reload().Scalars("train/loss")
    assert [(event.step, event.value) for event in curve] == [(100, 1.0), (200, 1.0), (250, 2.0)]


def test_training_writes_every_field_of_the_contract_to_both(tmp_path: Path) -> None:
    ended = command_line("train", "catch", "transport=local", "run.total_steps=640", "--run-dir", tmp_path / "run")
    assert ended.code == 0
    last = read_metrics(tmp_path / "run")[-1]
    assert last.keys() >= CONTRACT
    assert all(isinstance(last[name], int | float) for name in CONTRACT)
    curves = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    for name in CONTRACT - {"env_steps", "wall_seconds"}:
        assert curves.Scalars(f"train/{name}")[-1].value == pytest.approx(last[name], rel=1e-6)
        assert curves.Scalars(f"train/{name}")[-1].step == last["env_steps"]
    assert "640 / 640 steps" in ended.out
    assert "Finished." in ended.out


def test_display_shows_progress_return_speed_and_who_waits() -> None:
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=120)
    with Display("catch", 2000, 475.0, console) as sink:
        for seconds, done in ((1.0, 0.25), (2.0, 0.5), (3.0, 0.75)):
            values = {"wall_seconds": seconds, "progress": done, "learner_waits": 0.4, "steps_per_second": 100.0}
            sink.write(line(**values))
            assert ("left" in console.export_text(clear=False)) == (seconds == 3.0)  # it waits until it knows
    shown = console.export_text()
    assert "1,500 / 2,000 steps (6,000 frames), 0:01 left" in shown
    assert "21.5 of 475" in shown
    assert "100 steps/s, 3 updates" in shown
    assert "the learner waits for actors 40% of the time" in shown


EVALUATION = {"mean": 487.25, "std": 4.5, "episodes": 20, "env_steps": 120_000, "best": True, "checkpoint": "x.pt"}


def test_evaluations_are_shown_and_kept_beside_the_metrics(tmp_path: Path) -> None:
    told = "487.2 +- 4.5 over 20 episodes, at 120,000 steps (the best so far)"
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=120)
    with Display("catch", 2000, 475.0, console) as sink:
        sink.evaluated(EVALUATION)  # even before the first line
        sink.write(line())
        sink.evaluated(EVALUATION | {"best": False, "mean": math.inf, "std": None})
    shown = console.export_text()
    assert told in shown
    assert shown.rstrip().endswith("- +- - over 20 episodes, at 120,000 steps")
    file = io.StringIO()
    with PlainLines("catch", 2000, Console(file=file, width=40)) as sink:
        sink.evaluated(EVALUATION)
    assert file.getvalue() == f"catch: evaluated: {told}\n"
    with JsonLines(tmp_path / "metrics.jsonl", tmp_path / "eval.jsonl") as sink:
        assert not (tmp_path / "eval.jsonl").exists()
        sink.evaluated(EVALUATION | {"mean": math.nan})
    assert json.loads((tmp_path / "eval.jsonl").read_text()) == EVALUATION | {"mean": None}
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_plain_lines_are_one_line_each_without_colours() -> None:
    file = io.StringIO()
    with PlainLines("catch", 2000, Console(file=file, width=40)) as sink:
        sink.write(line(frames=1500, learner_waits=0.0, queue=0.9))
    assert file.getvalue().splitlines() == [
        "catch: 1,500 / 2,000 steps, return 21.5, 1,000 steps/s, lag 0.5, the actors wait for the learner"
    ]


def test_brackets_in_a_title_or_a_note_are_printed_as_they_are() -> None:
    file = io.StringIO()
    with PlainLines("catch[/b]", 2000, Console(file=file)) as sink:
        sink.write(line())
        sink.note("clip", "runs/[red]/clip.mp4")
    progress, note = file.getvalue().splitlines()
    assert progress.startswith("catch[/b]: ")
    assert note == "catch[/b]: clip: runs/[red]/clip.mp4"


def test_sparkline_goes_from_the_lowest_to_the_highest() -> None:
    assert sparkline([0.0, 7.0]) == "▁█"
    assert sparkline([3.0, 3.0, 3.0]) == "▁▁▁"
    assert sparkline([1.0]) == ""
    assert len(sparkline([float(i) for i in range(1000)])) == 40


def test_duration_is_hours_minutes_seconds() -> None:
    assert [duration(seconds) for seconds in (0, 59.4, 61, 3600 + 62)] == ["0:00", "0:59", "1:01", "1:01:02"]


def test_a_notebook_shows_one_picture_that_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, content: str) -> None:
            shown.append(content)

    def display(content: str, display_id: bool) -> Handle:
        shown.append(content)
        return Handle()

    module = types.ModuleType("IPython.display")
    module.HTML, module.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    with NotebookDisplay("my <env>", 2000, 475.0) as sink:
        for number in range(MOST_POINTS + 50):
            sink.write(line(env_steps=number, episode_return=0.5 * number, wall_seconds=float(number)))
        sink.evaluated(EVALUATION)
    assert shown[0] == "<pre>my &lt;env&gt;: starting the actors ...</pre>"
    assert len(shown) == MOST_POINTS + 52
    assert "174.5 of 475" in shown[-1]
    assert "487.2 +- 4.5 over 20 episodes" in shown[-1]
    (points,) = re.findall(r"points='([^']*)'", shown[-1])
    assert 100 < len(points.split()) <= MOST_POINTS
    assert points.split()[0].startswith("0.0,")
    assert points.split()[-1].startswith("480.0,")


def test_only_a_kernel_is_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    assert in_notebook()
