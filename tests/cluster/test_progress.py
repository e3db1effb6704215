"""What users see of a run on other machines, and where it is written."""

import json

import pytest

from pronk.cluster import progress
from pronk.cluster.cluster_run import train_on_cluster
from pronk.config import Config
from pronk.types import UserError


class Shown:
    def __init__(self):
        self.lines = []

    def write(self, line):
        self.lines.append(line["updates"])


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """(path of the metrics, what a display was given, a function that shows what is new)."""
    monkeypatch.setattr(progress, "SHOW_SECONDS", 0.0)
    path, display = tmp_path / "metrics.jsonl", Shown()
    write(path, range(3))
    followed = progress.Progress(path, display, print)
    return path, display.lines, lambda: followed.show([], [])


def write(path, numbers, mode="w"):
    with open(path, mode) as file:
        file.writelines(json.dumps({"updates": number}) + "\n" for number in numbers)


def test_only_the_newest_of_the_new_lines_is_shown(shown):
    path, lines, show = shown
    show()
    assert lines == [], "of an earlier session"
    write(path, range(3, 100), "a")
    show()
    show()
    assert lines == [99]


def test_a_torn_line_is_shown_when_it_is_complete(shown):
    path, lines, show = shown
    with open(path, "a") as file:
        file.write('{"updates"')
        file.flush()
        show()
        file.write(": 3}\n")
    show()
    assert lines == [3]


def test_a_file_that_was_rewritten_is_followed(shown):
    """A resumed run drops the lines after its checkpoint, and writes others: the file may be as long as before."""
    path, lines, show = shown
    write(path.with_suffix(".new"), [7, 8, 9])
    path.with_suffix(".new").replace(path)
    show()
    path.unlink()
    show()
    write(path, [10])
    show()
    assert lines == [9, 10]


def test_a_line_that_is_not_json_is_skipped(shown):
    path, lines, show = shown
    write(path, [3], "a")
    with open(path, "a") as file:
        file.write("not JSON\n")
    show()
    assert lines == [3]


def test_a_run_directory_that_cannot_be_made_is_a_mistake_of_the_user(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot make the run directory .*/run: Not a directory"):
        train_on_cluster(
            Config(), [], [], run_dir=tmp_path / "file" / "run", name="", resume=False, display=None, say=print
        )
