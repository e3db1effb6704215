"""A checkpoint that is there is whole, is data only, and is the newest that can be."""

from __future__ import annotations

import contextlib
import pickle
import random
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Training, command_line, read_metrics, read_summary

from pronk.config import load_config, resolve
from pronk.evaluation.playing import checkpoint_of, restored_network
from pronk.processes.full_disk import no_compiled_files
from pronk.runs.checkpoint import DamagedCheckpoint, load_checkpoint
from pronk.runs.directory import RunDirectory
from pronk.starting import learner_for, spec_of
from pronk.types import UserError

NO_CHECKPOINTS = [b"", b"torn", b"\x80\x02.", b"PK\x03\x04", bytes(1000), random.Random(1).randbytes(1000)]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(load_config("catch"), tmp_path / "run", "catch")


def state(env_steps: int, size: int = 1000) -> dict[str, Any]:
    weights = torch.full((size,), float(env_steps))
    return {"learner": {"network": weights}, "metrics": {"env_steps": env_steps}, "config": {}}


def steps_in(run: RunDirectory) -> list[int]:
    """What each file holds, the best one last; nothing else may lie there."""
    *numbered, best = sorted(run.checkpoints.folder.iterdir())
    return [load_checkpoint(path)["metrics"]["env_steps"] for path in (*numbered, best)]


@contextlib.contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes: what does fails half-way, as on a full disk.

    Nothing is compiled to disk meanwhile: the truncated files would break all later tests.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patched, no_compiled_files():
        patched.setenv("PYTHONDONTWRITEBYTECODE", "1")  # for the children
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


class CannotBePickled:
    def __reduce__(self) -> Any:
        raise RuntimeError("not this one")


def test_last_k_and_the_best_are_kept(run: RunDirectory) -> None:
    for steps in range(100, 600, 100):
        run.checkpoints.save(state(steps), keep=2, best=steps == 200)
    assert steps_in(run) == [400, 500, 200]
    assert run.checkpoints.restore()[0]["metrics"]["env_steps"] == 500


def test_names_sort_by_steps_however_many_digits_they_have(run: RunDirectory) -> None:
    for steps in (9, 10, 1_000, 999_999_999_999):
        run.checkpoints.save(state(steps), keep=10)
    assert run.checkpoints.restore()[0]["metrics"]["env_steps"] == 999_999_999_999


def test_every_tensor_comes_back_bit_for_bit(run: RunDirectory) -> None:
    config = resolve(load_config("catch", ["network.core=lstm"]))
    learner = learner_for(config, spec_of(config))
    learner.version = 7
    saved = learner.state()
    run.checkpoints.save(state(1) | {"learner": saved}, keep=1)
    torch.rand(3)
    other = learner_for(config.replace({"run.seed": 2}), spec_of(config))
    other.load_state(run.checkpoints.restore()[0]["learner"])
    restored = other.state()
    assert restored["version"] == 7
    for part in ("network", "optimiser"):
        assert all(torch.equal(restored[part][name], saved[part][name]) for name in saved[part])
    assert torch.equal(restored["random"], saved["random"])


@pytest.mark.parametrize("limit", [0, 1, 700, 20_000, 39_000])
def test_full_disk_leaves_the_checkpoint_before_and_no_other_file(limit: int, run: RunDirectory) -> None:
    run.checkpoints.save(state(100, 10_000), keep=1, best=True)
    with full_disk(limit), pytest.raises((OSError, RuntimeError)):
        run.checkpoints.save(state(200, 10_000), keep=1, best=True)
    assert steps_in(run) == [100, 100]


@pytest.mark.parametrize("steps", [100, 200])  # over the one before, and beside it
def test_error_while_writing_leaves_the_checkpoint_before_and_no_other_file(steps: int, run: RunDirectory) -> None:
    run.checkpoints.save(state(100), keep=1, best=True)
    with pytest.raises(RuntimeError, match="not this one"):
        run.checkpoints.save(state(steps) | {"config": CannotBePickled()}, keep=1, best=True)
    assert steps_in(run) == [100, 100]


@pytest.mark.parametrize("content", NO_CHECKPOINTS)
def test_file_that_is_no_checkpoint_falls_back_to_the_one_before(content: bytes, run: RunDirectory) -> None:
    run.checkpoints.save(state(100), keep=3)
    run.checkpoints.save(state(200), keep=3).write_bytes(content)
    found, problems = run.checkpoints.restore()
    assert found["metrics"]["env_steps"] == 100
    assert list(problems) == [run.checkpoints.folder / "000000000200.pt"]


def test_checkpoint_torn_anywhere_falls_back_to_the_one_before(run: RunDirectory) -> None:
    run.checkpoints.save(state(100), keep=3)
    newest = run.checkpoints.save(state(200), keep=3)
    whole = newest.read_bytes()
    for length in range(0, len(whole), 97):
        newest.write_bytes(whole[:length])
        found, problems = run.checkpoints.restore()
        assert (found["metrics"]["env_steps"], len(problems)) == (100, 1)


def test_a_flipped_bit_is_noticed_unless_it_only_says_that_there_is_a_digest(run: RunDirectory) -> None:
    run.checkpoints.save(state(100), keep=3)
    newest = run.checkpoints.save(state(200), keep=3)
    whole, dice = newest.read_bytes(), random.Random(1)
    comment = b"..sha256:" + bytes(64)  # with its length
    for at in (
        *dice.sample(range(len(whole)), 300),
        *range(len(whole) - 300, len(whole)),
    ):  # the directory is at the end
        newest.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1 :])
        found, problems = run.checkpoints.restore()
        if problems or at < len(whole) - len(comment):
            assert (found["metrics"]["env_steps"], len(problems)) == (100, 1), at
        else:
            assert torch.equal(found["learner"]["network"], state(200)["learner"]["network"])


def test_a_checkpoint_of_before_the_digest_is_read_and_has_its_checksums(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save({"format": 1, **state(100)}, path)
    assert load_checkpoint(path)["metrics"]["env_steps"] == 100
    weights = state(100)["learner"]["network"].numpy().tobytes()
    whole = path.read_bytes()
    assert whole.count(weights) == 1
    path.write_bytes(whole.replace(weights, bytes(len(weights))))
    with pytest.raises(UserError, match="is wrong: the file is damaged"):
        load_checkpoint(path)


@pytest.mark.parametrize("missing", ["learner", "metrics", "config"])
def test_a_checkpoint_without_one_of_its_parts_is_refused(missing: str, run: RunDirectory) -> None:
    path = run.checkpoints.save(state(100) | {missing: None}, keep=3) if missing != "metrics" else None
    if path is None:
        path = run.checkpoints.folder / "000000000100.pt"
        torch.save({"format": 1, **state(100), "metrics": None}, path)
    with pytest.raises(UserError, match=f"it has no {missing}"):
        load_checkpoint(path)


@pytest.mark.parametrize("change", [{"network": None}, {"optimiser": 3}, {"version": None}, {"random": "x"}], ids=str)
def test_content_that_pronk_did_not_write_is_a_mistake_in_one_line(change: dict[str, Any]) -> None:
    config = resolve(load_config("catch"))
    learner = learner_for(config, spec_of(config))
    content = {key: value for key, value in (learner.state() | change).items() if value is not None}
    with pytest.raises(UserError, match=r"the checkpoint does not fit this configuration: ."):
        learner.load_state(content)
    if "network" not in content:
        with pytest.raises(UserError, match="any more: it has no 'network'"):
            restored_network(config, spec_of(config), {"learner": content})


def test_playing_says_which_checkpoint_it_cannot_use(run: RunDirectory) -> None:
    run.checkpoints.save(state(100), keep=3)
    run.checkpoints.save(state(200), keep=3).write_bytes(b"torn")
    with pytest.warns(DamagedCheckpoint, match=r"000000000200.pt cannot be read .*; using an older one"):
        assert checkpoint_of(run, best=False)["metrics"]["env_steps"] == 100


def test_weights_that_are_not_finite_do_not_play() -> None:
    config = resolve(load_config("catch"))
    saved = learner_for(config, spec_of(config)).state()
    next(iter(saved["network"].values())).view(-1)[0] = torch.nan
    with pytest.raises(UserError, match="are not finite"):
        restored_network(config, spec_of(config), {"learner": saved})


def test_no_readable_checkpoint_is_told_in_one_line(run: RunDirectory) -> None:
    with pytest.raises(UserError, match="has no checkpoint yet"):
        run.checkpoints.restore()
    run.checkpoints.save(state(100), keep=3).write_bytes(b"")
    with pytest.raises(UserError, match="no checkpoint can be read") as caught:
        run.checkpoints.restore()
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("save", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))])
def test_malicious_checkpoint_is_refused_and_runs_nothing(save: Any, run: RunDirectory, tmp_path: Path) -> None:
    touched, checkpoint = tmp_path / "touched", run.checkpoints.folder / "000000000100.pt"
    pickle.loads(pickle.dumps(Touches(touched)))
    assert touched.exists()  # so it would work
    touched.unlink()
    save({"format": 1, "metrics": Touches(touched)}, checkpoint)
    with pytest.raises(UserError, match="cannot be read"):
        load_checkpoint(checkpoint)
    assert not touched.exists()


@pytest.mark.parametrize("content", [{"format": 99}, {"metrics": {}}, [1, 2], {"format": "1"}])
def test_other_format_is_refused_by_name(content: Any, run: RunDirectory) -> None:
    path = run.checkpoints.folder / "000000000100.pt"
    torch.save(content, path)
    with pytest.raises(UserError, match=r"has checkpoint format .* reads format 1"):
        load_checkpoint(path)


def test_full_disk_is_reported_and_training_goes_on_to_its_end(tmp_path: Path) -> None:
    settings = ("transport=local", "run.stop_return=null", "run.total_steps=6400", "run.log_every_seconds=1e-9")
    with full_disk(4000), Training(tmp_path / "run", "catch", *settings, fresh=True) as training:  # inherits the limit
        code = training.wait()
    assert "cannot write a checkpoint" in training.err
    assert "cannot write metrics" in training.err
    assert "Traceback" not in training.err
    assert "failed: the last checkpoint could be written neither to" in training.err
    assert code == 1
    summary = read_summary(tmp_path / "run")
    assert (summary["env_steps"], summary["outcome"], summary["checkpoint"]) == (6400, "failed", None)
    assert not list((tmp_path / "run").rglob("*.tmp"))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 KiB, where mounting is allowed."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=24k", "none", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a file system")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_disk_without_a_byte_left_keeps_the_last_checkpoint_elsewhere(tiny_disk: Path) -> None:
    settings = ("transport=local", "run.stop_return=null", "run.total_steps=9600", "run.log_every_seconds=1e-9")
    ended = command_line("train", "catch", *settings, "--run-dir", tiny_disk / "run", "--quiet")
    assert ended.code == 1
    assert "cannot write metrics" in ended.err
    assert "cannot write a checkpoint" in ended.err
    assert not list(tiny_disk.rglob("*.tmp"))
    rescued = Path(ended.err.partition("move it there from ")[2].split()[0])
    assert load_checkpoint(rescued)["metrics"]["env_steps"] == 9600
    shutil.rmtree(rescued.parent)


def test_a_run_that_cannot_begin_or_go_on_because_the_disk_is_full_says_so_in_one_line(tmp_path: Path) -> None:
    settings = ("transport=local", "run.stop_return=null", "run.total_steps=960", "--quiet")
    first, second = tmp_path / "first", tmp_path / "second"
    with full_disk(100):
        ended = command_line("train", "catch", *settings, "--run-dir", first)
    assert ended.code == 1
    assert ended.err == (
        f"failed: cannot write the run directory {first}: File too large; "
        "make room there, or choose another directory\n"
    )
    assert command_line("train", "catch", *settings, "--run-dir", second).code == 0
    with full_disk(100):
        ended = command_line("train", second, "--resume", "run.total_steps=1920", "--quiet")
    assert ended.code == 1
    assert ended.err.startswith(f"failed: cannot write the run directory {second}: File too large")
    assert ended.err.count("\n") == 1
    assert (second / "summary.json").exists(), "it is as it was"


def test_loss_that_is_not_finite_keeps_the_batch_and_poisons_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run"
    often = ("checkpoint.every_seconds=1e-9", "checkpoint.keep=100", "transport=local", "run.total_steps=1e9")
    often += ("actors.unroll_length=20", "learner.passes=1")  # several updates before the huge reward
    ended = command_line("train", "faulty:HugeReward", "env.kwargs.after=100", *often, "--run-dir", path, "--quiet")
    assert ended.code == 1
    assert "Traceback" not in ended.err
    assert "loss is" in ended.err
    assert str(path / "broken_batch.pt") in ended.err
    broken = torch.load(path / "broken_batch.pt", weights_only=True)
    assert (broken["batch"]["reward"] > 1e38).any()
    run = RunDirectory.open(path)
    assert len(run.checkpoints.saved()) >= 2
    for saved in [*run.checkpoints.saved(), run.checkpoints.best]:
        weights = load_checkpoint(saved)["learner"]["network"].values()
        assert all(weight.isfinite().all() for weight in weights)
    newest = load_checkpoint(run.checkpoints.saved()[-1])["learner"]["network"]
    assert all(torch.equal(newest[name], broken["network"][name]) for name in newest)
    summary = read_summary(path)
    assert summary["outcome"] == "failed"
    assert ended.err == f"failed: {summary['failure']}\n"


def test_return_beyond_all_numbers_still_gives_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "run"
    settings = ("loss.reward_clip=abs_one", "transport=local", "run.total_steps=640")
    ended = command_line("train", "faulty:HugeReward", *settings, "--run-dir", path, "--quiet")
    assert ended.code == 0
    assert read_metrics(path)[-1]["episode_return"] is None
    assert read_summary(path)["episode_return"] is None
