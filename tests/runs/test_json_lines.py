"""Lines come out right from files that are empty, short, long, torn, foreign, growing or replaced."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from made_runs import line, make_long_metrics

from pronk.runs import json_lines


def write(path: Path, count: int) -> list[dict]:
    lines = [line(number, count) for number in range(count)]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_a_short_file_is_read_whole(path: Path) -> None:
    lines = write(path, 300)
    stretch = json_lines.read(path, 500)
    assert stretch.lines == lines
    assert (stretch.end, stretch.sampled) == (path.stat().st_size, False)


def test_first_and_last_are_there_when_lines_are_left_out(path: Path) -> None:
    lines = write(path, 300)
    stretch = json_lines.read(path, 200)
    assert (len(stretch.lines), stretch.sampled) == (200, True)
    assert (stretch.lines[0], stretch.lines[-1]) == (lines[0], lines[-1])


def test_a_long_file_is_only_glanced_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_long_metrics(path, 100_000)
    asked: list[int] = []
    read = json_lines.read_exactly
    monkeypatch.setattr(json_lines, "read_exactly", lambda file, count: asked.append(count) or read(file, count))
    stretch = json_lines.read(path, 200)
    steps = [one["env_steps"] for one in stretch.lines]
    assert stretch.sampled
    assert 195 <= len(steps) <= 201
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (1_00000_0000, 1_00009_9999)
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert max(gaps[:-1]) <= 502, "evenly spaced"  # 100,000 lines / 200
    assert sum(asked) < 3 * json_lines.GLANCE


def test_every_place_in_a_file_leads_to_the_next_whole_line(path: Path) -> None:
    path.write_bytes(b'{"a":1}\n{"a":22}\n\n{"a":333}\n{"a":4')
    with open(path, "rb", buffering=0) as file:
        found = [json_lines.line_after(file, place) for place in range(path.stat().st_size)]
    starts = [0, 8, 17, 18]
    texts = {0: b'{"a":1}', 8: b'{"a":22}', 17: b"", 18: b'{"a":333}'}
    for place, (at, text) in enumerate(found[:19]):
        expected = next(start for start in starts if start >= place)
        assert (at, text) == (expected, texts[expected])
    assert all(text == b"" for _, text in found[19:]), "what is still being written is not given out"


def test_torn_and_foreign_lines_are_passed_over(path: Path) -> None:
    good = json.dumps({"env_steps": 1})
    path.write_bytes(
        f'{good}\n{{"env_st\n[1, 2]\n"words"\n\n{good}\n'.encode() + b"\xff\xfe\x00\n" + b'{"env_steps": 2, "loss'
    )
    stretch = json_lines.read(path, 100)
    assert stretch.lines == [{"env_steps": 1}, {"env_steps": 1}]
    assert stretch.end == path.stat().st_size - len('{"env_steps": 2, "loss')
    assert json_lines.last(path) == {"env_steps": 1}
    assert json_lines.read_all(path) == stretch.lines


@pytest.mark.parametrize("content", [None, b"", b'{"n": 1', b"\n\n"])
def test_no_whole_line_is_no_line(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    assert json_lines.read(path, 10).lines == json_lines.read_all(path) == []
    assert json_lines.last(path) is None


@pytest.mark.parametrize("width", [10, 3000, 100_000])
def test_the_last_line_is_found_however_long_it_is(path: Path, width: int) -> None:
    path.write_text("".join(json.dumps({"n": n, "pad": "x" * width}) + "\n" for n in range(100)) + '{"n": 100')
    assert json_lines.last(path) == {"n": 99, "pad": "x" * width}
    assert json_lines.read(path, 10).lines[-1]["n"] == 99


def test_a_stretch_is_given_whole_where_that_is_wanted(path: Path) -> None:
    lines = write(path, 300)
    size = path.stat().st_size
    stretch = json_lines.read(path, 10, complete_below=size)
    assert (stretch.lines, stretch.sampled) == (lines, False)
    assert len(json_lines.read(path, 10, complete_below=size - 1).lines) <= 11


def test_a_line_that_never_ends_is_not_waited_for(path: Path) -> None:
    path.write_bytes(b"x" * (3 * json_lines.LONGEST_LINE))
    assert json_lines.read(path, 50).lines == []
    assert json_lines.last(path) is None


def test_only_what_is_new_is_given_to_who_follows(path: Path) -> None:
    write(path, 10)
    before = json_lines.read(path, 100)
    with open(path, "a") as file:
        file.write(json.dumps({"env_steps": 77}) + "\n" + '{"env_steps": 7')
    news, goes_on = json_lines.follow(path, 100, before.file, before.end)
    assert (news.lines, goes_on) == ([{"env_steps": 77}], True)
    with open(path, "a") as file:
        file.write("8}\n")
    news, goes_on = json_lines.follow(path, 100, news.file, news.end)
    assert (news.lines, goes_on) == ([{"env_steps": 78}], True)
    assert json_lines.follow(path, 100, news.file, news.end) == (news._replace(lines=[]), True)


@pytest.mark.parametrize("how", ["shorter", "replaced"])
def test_a_rewritten_file_is_read_anew(path: Path, how: str) -> None:
    write(path, 10)
    before = json_lines.read(path, 100)
    if how == "shorter":
        os.truncate(path, path.read_bytes().index(b"\n") + 1)
    else:
        other = path.with_suffix(".tmp")
        write(other, 20)
        os.replace(other, path)
    news, goes_on = json_lines.follow(path, 100, before.file, before.end)
    assert not goes_on
    assert len(news.lines) == (1 if how == "shorter" else 20)


def test_the_last_part_begins_at_a_line(path: Path) -> None:
    lines = write(path, 300)
    start = json_lines.share(path, 0.1)
    assert json_lines.read(path, 1000, start).lines == lines[-len(json_lines.read(path, 1000, start).lines) :]
    assert 29 <= len(json_lines.read(path, 1000, start).lines) <= 31


@pytest.mark.parametrize("low", [-5.0, 0.0, 1.0, 4096.0, 4097.0, 200_000.0, 409_600.0, 1e9])
def test_a_stretch_between_two_values_is_found(path: Path, low: float) -> None:
    lines = write(path, 100)
    with open(path, "ab") as file:
        file.write(b"not JSON\n")
    found = json_lines.read_between(path, 500, "env_steps", low, low + 50_000).lines
    assert found == [one for one in lines if low <= one["env_steps"] <= low + 50_000]


def test_a_stretch_of_a_long_file_has_every_line(path: Path) -> None:
    make_long_metrics(path, 100_000)
    low = 1_00003_0100
    found = json_lines.read_between(path, 500, "env_steps", low, low + 99)
    assert [one["env_steps"] for one in found.lines] == list(range(low, low + 100))
    assert not found.sampled
