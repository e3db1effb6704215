"""--resume: goes on where the checkpoint was, with nothing lost and nothing counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from processes import SIZES, STEPS_PER_UPDATE, assert_monotone, command_line, read_metrics, read_summary
from test_serial_determinism import same

from pronk.config import resolve
from pronk.runs.checkpoint import load_checkpoint
from pronk.runs.directory import RunDirectory
from pronk.starting import learner_for, spec_of
from pronk.training import Training

SERIAL = (
    *SIZES,
    "transport=local",
    "run.stop_return=null",
    "run.log_every_seconds=1e-9",
    "checkpoint.every_seconds=1e-9",
)
RATE = ("optimiser.learning_rate=1e-3", "optimiser.schedule=linear")
OPTIMISERS = ("adam", "rmsprop", "rmsprop_tf")


def train(run: Path, *arguments: str) -> tuple[int, str]:
    ended = command_line("train", "catch", *arguments, "--run-dir", run, "--quiet")
    return ended.code, ended.err


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Ten updates, the last three checkpoints."""
    assert train(tmp_path / "run", *SERIAL, *RATE, "run.total_steps=3200") == (0, "")
    return RunDirectory(tmp_path / "run")


def files(run: RunDirectory) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_state_is_restored_bit_for_bit(optimiser: str, tmp_path: Path) -> None:
    changes = (*SERIAL, f"optimiser={optimiser}", "optimiser.momentum=0.5", "run.total_steps=3200")
    assert train(tmp_path / "run", *changes) == (0, "")
    run = RunDirectory(tmp_path / "run")
    before = run.checkpoints.restore()[0]
    assert all(tensor.any() for tensor in before["learner"]["optimiser"].values())
    config = run.load_config()
    resolved = resolve(config)
    learner = learner_for(resolved, spec_of(config))
    assert not same(learner.state()["network"], before["learner"]["network"])
    Training(resolved, config, run, learner, resume=True, say=print)
    for part in ("network", "optimiser", "version", "random"):
        assert same(learner.state()[part], before["learner"][part])


def test_resume_of_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    assert train(tmp_path / "run", *SERIAL, "run.total_steps=3200") == (0, "")
    run = RunDirectory(tmp_path / "run")
    before, lines = run.checkpoints.restore()[0], run.metrics.read_text()
    assert train(run.path, "--resume") == (0, "")
    assert same(run.checkpoints.restore()[0]["metrics"], before["metrics"])
    assert run.metrics.read_text() == lines
    assert read_summary(run.path)["env_steps"] == 3200


def test_resume_keeps_its_overrides(tmp_path: Path) -> None:
    assert train(tmp_path / "run", *SERIAL, "run.total_steps=3200") == (0, "")
    assert train(tmp_path / "run", "--resume", "run.total_steps=6400") == (0, "")
    assert RunDirectory(tmp_path / "run").load_config().run.total_steps == 6400


def test_counters_and_schedule_go_on(run: RunDirectory) -> None:
    assert train(run.path, "--resume", "run.total_steps=6400") == (0, "")
    lines = read_metrics(run.path)
    assert_monotone(lines)
    assert [line["updates"] for line in lines if line["updates"] > 10][:10] == list(range(11, 21))
    for line in lines:
        total = 3200 if line["updates"] <= 10 else 6400
        assert line["env_steps"] == STEPS_PER_UPDATE * line["updates"]
        done = STEPS_PER_UPDATE * (line["updates"] - 1) / total
        assert line["learning_rate"] == pytest.approx(1e-3 * (1 - done))
    assert read_summary(run.path)["updates"] == 20


def test_lines_after_an_older_checkpoint_and_a_torn_one_are_forgotten(run: RunDirectory) -> None:
    run.checkpoints.saved()[-1].unlink()
    with open(run.metrics, "a") as file:
        file.write('{"wall_seconds": 3.2, "env_steps": 35')
    assert train(run.path, "--resume", "run.total_steps=6400") == (0, "")
    updates = [line["updates"] for line in read_metrics(run.path)]
    assert sorted(set(updates)) == list(range(1, 21))
    assert_monotone(read_metrics(run.path))


def test_torn_newest_checkpoint_falls_back_to_the_one_before_with_a_warning(run: RunDirectory) -> None:
    newest = run.checkpoints.saved()[-1]
    newest.write_bytes(newest.read_bytes()[:5000])
    code, err = train(run.path, "--resume", "run.total_steps=6400")
    assert code == 0
    assert len(err.splitlines()) == 1
    assert newest.name in err
    assert "the one before" in err
    assert read_summary(run.path)["updates"] == 20
    assert run.checkpoints.restore()[1] == {}


def test_torn_newest_checkpoint_does_not_push_out_what_is_learnt_after_it(run: RunDirectory) -> None:
    torn = run.checkpoints.saved()[-1].with_stem("000000999999")
    torn.write_bytes(run.checkpoints.saved()[-1].read_bytes()[:5000])
    code, err = train(run.path, "--resume", "run.total_steps=6400", "checkpoint.keep=1")
    assert code == 0, err
    assert run.checkpoints.restore()[0]["metrics"]["env_steps"] == 6400


def test_used_run_directory_is_refused_and_left_as_it_is(run: RunDirectory) -> None:
    before = files(run)
    code, err = train(run.path, *SERIAL)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "resume" in err
    assert files(run) == before


def test_directory_with_something_else_in_it_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    code, _ = train(tmp_path, *SERIAL)
    assert code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("change", ["network.hidden=[8]", "optimiser=rmsprop", "env.kwargs={rows: 7}"])
def test_resume_with_a_configuration_that_does_not_fit_is_a_mistake_told_in_one_line(
    change: str, run: RunDirectory
) -> None:
    code, err = train(run.path, "--resume", "run.total_steps=6400", change)
    assert code == 2, err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1


def test_resume_from_counters_that_pronk_did_not_write_is_a_mistake_told_in_one_line(run: RunDirectory) -> None:
    path = run.checkpoints.newest()
    content = load_checkpoint(path)
    del content["metrics"]["updates"]
    torch.save(content, path)
    code, err = train(run.path, "--resume", "run.total_steps=6400")
    assert (code, err) == (2, "error: the checkpoint does not fit this configuration: it has no 'updates'\n")


def test_resume_without_anything_to_resume_is_a_mistake_told_in_one_line(tmp_path: Path) -> None:
    for arguments in (("--resume",), ("--resume", "--run-dir", str(tmp_path)), ("--resume", "--run-dir", "nowhere")):
        ended = command_line("train", "catch", *arguments)
        assert ended.code == 2
        assert len(ended.err.splitlines()) == 1


def test_run_that_failed_before_its_first_checkpoint_can_be_started_again(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert command_line("train", "faulty:RaisesInInit", "transport=local", "--run-dir", path, "--quiet").code == 1
    first = command_line("train", "catch", *SERIAL, "run.total_steps=320", "--run-dir", path, "--quiet")
    again = command_line("train", "catch", "--resume", "run.total_steps=320", "--run-dir", path, "--quiet")
    assert 0 in (first.code, again.code), f"neither anew nor with --resume:\n{first.err}{again.err}"
