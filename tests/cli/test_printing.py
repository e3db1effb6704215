"""What a terminal gets: rich's own commands, and none that a run's name or an exception holds."""

import errno
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pronk.cli import actor, bench, compare, shell
from pronk.learners.coordinator import names_of
from pronk.processes import child
from pronk.types import Failure

EVIL = "a\x1b]0;title\x07\x1b[31mb\x9bc\ud800d"


def printed_line(screen: shell.Screen) -> None:
    screen.print(Text(EVIL, "red"), soft_wrap=True)
    screen.print(EVIL, markup=False)


def printed_table(screen: shell.Screen) -> None:
    table = Table("run")
    table.add_row(Text(EVIL, "red"))
    screen.print(table)


def live_display(screen: shell.Screen) -> None:
    with Live(console=screen, auto_refresh=False) as live:
        live.update(Text(EVIL, "red"), refresh=True)
        screen.print(Text(EVIL, "red"))


def status(screen: shell.Screen) -> None:
    with screen.status(Text(EVIL, "red")):
        pass


@pytest.mark.parametrize("show", [printed_line, printed_table, live_display, status])
def test_names_cannot_command_the_terminal(show):
    file = io.StringIO()
    show(shell.Screen(file=file, force_terminal=True, width=80, color_system="truecolor"))
    printed = file.getvalue()
    printed.encode()  # a lone surrogate would raise
    assert "]0;title" in printed
    assert "\x1b]" not in printed
    assert "\x07" not in printed
    assert "\x9b" not in printed
    assert "\x1b[31m" in printed  # rich's own: it was to be red
    assert "\x1b[31mb" not in printed


def test_brackets_in_a_name_are_not_markup():
    figures = dict.fromkeys(("env", "inference", "learner", "limit", "trained", "passes", "cores", "rounds"), 1.0)
    table = bench.table_of({**figures, "spread": dict.fromkeys(figures, (1.0, 1.0))}, "mine[/b].yaml")
    file = io.StringIO()
    shell.Screen(file=file, width=80).print(table)
    assert "mine[/b].yaml on" in file.getvalue()
    found = SimpleNamespace(key="env.id", cells={"task[/b]": {"group[/b]": [None]}}, values=["value[/b]"])
    shell.Screen(file=file, width=80).print(*compare.tables_along(found, gap=2))
    assert "task[/b]" in file.getvalue()
    assert "id=value[/b]" in file.getvalue()


def test_an_actors_speed_is_printed_over_the_one_before(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(actor, "out", shell.Screen(file=file, force_terminal=True, width=80))
    board = actor.Board(quiet=False)
    board._every = 0.0
    board.progress(1000)
    board.progress(2000)
    first, second = file.getvalue().split("\r")[1:]
    assert "1,000 steps sent" in first
    assert "2,000 steps sent" in second
    assert "\n" not in first


def test_lines_stay_lines():
    file = io.StringIO()
    screen = shell.Screen(file=file, width=80)
    screen.print(Text("one\n\ttwo"), soft_wrap=True)
    assert file.getvalue().split() == ["one", "two"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
def test_a_full_disk_under_the_output_ends_nothing():
    with open("/dev/full", "wb", buffering=0) as full:
        screen = shell.Screen(file=io.TextIOWrapper(full, write_through=True), width=80)
        screen.print("lost")
        screen.file = file = io.StringIO()
        screen.print("shown")
    assert file.getvalue() == "shown\n"


def test_a_message_that_cannot_be_encoded_keeps_its_cause(cli, monkeypatch):
    def fail(*_, **__):
        raise Failure("the file \udcff.txt is missing")

    monkeypatch.setattr("pronk.cli.show.load_config", fail)
    code, _, err = cli("show", "cartpole")
    assert (code, err) == (1, "failed: the file ?.txt is missing\n")


def test_the_token_stays_with_who_needs_it(monkeypatch):
    monkeypatch.setenv("PRONK_TOKEN", "secret")
    assert "PRONK_TOKEN" not in child.environment(keeps_secrets=False)
    assert child.environment(keeps_secrets=True)["PRONK_TOKEN"] == "secret"


def test_learners_are_named():
    assert names_of([1]) == "learner 1"
    assert names_of([1, 3]) == "learners 1, 3"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
@pytest.mark.parametrize(
    "command", [("show", "cartpole"), ("show", "--schema"), ("presets",), ("runs",), ("explain",), ("--help",)], ids=str
)
def test_a_listing_that_cannot_be_written_is_an_error_of_one_line(command, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "argv", ["pronk", *command])
    with open("/dev/full", "w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            shell.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "failed: cannot write to the standard output: [Errno 28] No space left on device\n"
    )


def test_the_end_of_a_file_is_not_ctrl_c(monkeypatch):
    def fail(*_, **__):
        raise EOFError("marshal data too short")

    monkeypatch.setattr("pronk.cli.show.load_config", fail)
    monkeypatch.setattr(sys, "argv", ["pronk", "show", "cartpole"])
    monkeypatch.setattr(sys, "path", sys.path[:])
    with pytest.raises(EOFError, match="marshal"):
        shell.main()


@pytest.mark.parametrize(
    ("of_command", "code", "start"),
    [(0, 0, "cannot write"), (130, 130, "cannot write"), (None, 1, "failed: cannot write")],
    ids=["trained", "interrupted", "only printed"],
)
def test_lost_output_fails_only_what_does_nothing_but_print(of_command, code, start, monkeypatch, capsys):
    monkeypatch.setattr(shell.Screen, "lost", None)  # another test of this process may have lost output
    assert shell.exit_code(of_command) == (of_command or 0)
    monkeypatch.setattr(shell.Screen, "lost", OSError(errno.ENOSPC, "No space left on device"))
    assert shell.exit_code(of_command) == code
    assert capsys.readouterr().err.startswith(start)
