"""A run that is broken, or not ours, is read within bounds and does not hide the others."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import command_line

from pronk.dashboard import runs as dashboard
from pronk.runs.directory import drop_lines_after
from pronk.runs.reading import Run, runs_below

LINE = {"env_steps": 5, "updates": 1, "episodes": 3, "episode_return": 1.5, "wall_seconds": 2.0}
BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]\n" for n in range(1, 9))
DEEP = "[" * 200_000 + "]" * 200_000


def written(name: str, content: str | bytes) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(content if isinstance(content, bytes) else content.encode()) and None


def fifo(name: str) -> Callable[[Path], None]:
    def make(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return make


HOSTILE = {
    "text for a number": written("metrics.jsonl", json.dumps(LINE | {"episode_return": "a", "env_steps": []}) + "\n"),
    "400 digits": written("metrics.jsonl", json.dumps(LINE | dict.fromkeys(LINE, 10**400)) + "\n"),
    "not UTF-8": written("metrics.jsonl", b'\xff\xfe{"env_steps": 5}\n'),
    "a list": written("metrics.jsonl", "[1, 2]\n{}\n"),
    "a line of 100 MB": written("metrics.jsonl", b'{"env_steps": "' + b"x" * 100_000_000 + b'"}\n'),
    "metrics are a pipe": fifo("metrics.jsonl"),
    "the summary is a pipe": fifo("summary.json"),
    "deep JSON": written("summary.json", DEEP),
    "deep YAML": written("config.yaml", DEEP),
    "YAML that contains itself": written("config.yaml", "env: &a {kwargs: *a}\nrun: [1]\n"),
    "a YAML bomb": written("config.yaml", BOMB),
    "a summary of 100 MB": written("summary.json", b" " * 100_000_000),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("env: {id: Catch-v0}\n")
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(LINE) + "\n")
    return tmp_path


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_run_is_read_quickly_and_hides_no_other(folder: Path, hostile: Callable[[Path], None]) -> None:
    hostile(folder / "bad")
    began = time.monotonic()
    rows = {run.name: run.overview() for run in runs_below(folder)}
    assert rows["good"]["last_return"] == 1.5
    assert rows.keys() == {"good", "bad"}
    assert dashboard.overview(folder / "bad")["state"] == "killed"
    assert Run(folder / "bad").evaluations == []
    assert time.monotonic() - began < 5.0


def test_names_are_printed_without_what_a_terminal_would_obey(folder: Path) -> None:
    os.rename(folder / "bad", os.fsencode(folder) + b"/\x1b[31mred\xff")
    ended = command_line("runs", folder)
    assert ended.code == 0, ended.err
    assert "?[31mred?" in ended.out
    assert "good" in ended.out
    assert json.loads(command_line("runs", folder, "--json").out)[0]["name"]


@pytest.mark.parametrize("line", [b"\xff\n", b'{"env_steps": 5}\n', b"[1,2]\n", b'{"updates": "1"}\n', b"{torn"])
def test_a_bad_line_does_not_keep_a_run_from_going_on(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "metrics.jsonl"
    good, late = (json.dumps(LINE | {"updates": updates}).encode() + b"\n" for updates in (1, 9))
    file.write_bytes(good + line.rstrip(b"{torn") + good + late + line)
    drop_lines_after(file, 5)
    assert file.read_bytes() == good + good
