"""`pronk bench --tune`, with real trainings."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from processes import descendants_of, is_running, start_pronk, wait_until

from pronk.actor import specs_for
from pronk.bench.grid import KEYS, Setting
from pronk.bench.halving import Halving, Turn
from pronk.bench.spans import Span
from pronk.bench.tuned_file import tree_of
from pronk.bench.tuning import Measured, Tuning
from pronk.cli.bench import keep
from pronk.config import load_config, resolve
from pronk.config.trees import flat
from pronk.envs.probing import spec_of
from pronk.layout import UnrollLayout
from pronk.types import UserError

SECONDS = 240
TINY = (
    "transport=shared_memory",
    "actors.count=1",
    "actors.envs=16",
    "learner.threads=1",
)  # leaves two settings: slots
SHORT = ("--tune", "--seconds", "0.1")
pytestmark = pytest.mark.timeout(2 * SECONDS)


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch):
    monkeypatch.setattr("pronk.bench.tuning.WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("pronk.cli.bench.LOOK_SECONDS", 0.01)


def assert_mistake(ended, *words):
    code, _, err = ended
    assert code == 2, err
    assert all(word in err for word in words), err


@pytest.mark.parametrize("source", ["catch", "cartpole"])
def test_the_file_can_be_trained(cli, source):
    envs = load_config(source).learner.batch_size
    code, out, err = cli("bench", source, *TINY, f"actors.envs={envs}", *SHORT, "--json")
    assert code == 0, err
    figures = json.loads(out)
    assert figures["file"] == f"{source}-tuned.yaml"
    assert {setting["actors.slots"] for setting in figures["settings"]} == {1, 2}
    for setting in figures["settings"]:
        low, high = setting["spread"]
        assert 0 < low <= setting["steps_per_second"] <= high
        assert setting["policy_lag"] >= 0
        assert setting["rounds"] == 3
    assert figures["settings"][0]["ratio"] >= figures["settings"][1]["ratio"]
    assert figures["default_is_good"] == (figures["default_of_best"] >= 0.9)
    assert figures["changes"].items() <= figures["chosen"].items()
    text = Path(figures["file"]).read_text()
    assert text.startswith(f"# Written by `pronk bench {source} --tune`")
    assert f"base: {source}\n" in text
    tuned = resolve(load_config(figures["file"]))
    assert {key: tuned.at(key) for key in KEYS} == figures["chosen"]
    assert tuned.learner.batch_size == envs
    code, _, err = cli("train", figures["file"], "run.total_steps=640", "transport=local", "--quiet")
    assert code == 0, err


def test_the_table_has_speed_lag_and_ratio(cli):
    code, out, err = cli("bench", "catch", *TINY, *SHORT, "--out", "mine.yaml")
    assert code == 0, err
    assert all(word in out for word in ("steps/s", "spread", "lag", "ratio", "default", "chosen"))
    assert "mine.yaml is ready: pronk train mine.yaml" in out
    assert "round 3 of 3: 2 settings" in err
    assert "saving" not in err
    assert_mistake(cli("bench", "catch", *TINY, *SHORT, "--out", "mine.yaml"), "--out", "mine.yaml exists already")


def test_a_setting_that_cannot_be_trained_is_named_and_left_out(cli, monkeypatch):
    """Here because the unrolls of 32 environments do not fit the memory."""
    config = load_config("catch")
    nbytes = UnrollLayout(specs_for(resolve(config), spec_of(config, print), {})).nbytes  # of 16 environments
    monkeypatch.setattr("pronk.starting.memory_bytes", lambda: 5 * nbytes)
    fixed = ("actors.count=1", "actors.slots=2", "learner.threads=1")
    code, out, err = cli("bench", "catch", *fixed, *SHORT, "--json")
    assert code == 0, err
    figures = json.loads(out)
    assert {setting["actors.envs"] for setting in figures["settings"]} == {8, 16}
    assert "actors.envs=32 actors.slots=2 learner.threads=1 cannot be trained: the unrolls of all actors need" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tune", "--seconds", "0"], ["--seconds", "0.1"]),
        (["--tune", "--seconds", "inf"], ["--seconds", "finite"]),
        (["--seconds", "inf"], ["--seconds", "finite"]),
        (["--tune", *TINY, "actors.slots=2"], ["nothing to tune: actors.count, actors.envs", "are all set"]),
        (["--tune", "--rounds", "3"], ["--rounds"]),
        (["--out", "mine.yaml"], ["--tune"]),
        (["--tune", "--out", "mine.json"], ["--out", ".yaml"]),
        (["--tune", "--out", "nowhere/mine.yaml"], ["--out", "nowhere"]),
        (["--tune", "transport=local"], ["transport=shared_memory"]),
    ],
)
def test_mistakes_are_found_before_anything_is_measured(cli, arguments, words):
    assert_mistake(cli("bench", "catch", *arguments), *words)


def test_a_file_that_cannot_be_written_does_not_cost_the_figures(cli, monkeypatch, tmp_path):
    """Its directory is gone after the minutes that measuring takes."""
    folder = tmp_path / "there"
    folder.mkdir()

    def tune(*arguments, **options):
        setting = Setting(1, 16, 2, 1)
        halving = Halving([setting], setting)
        halving.record(Turn(1, 1, setting), 1000.0)
        folder.rmdir()
        return Tuning(halving, {setting: Measured(setting, [Span(1.0, 1000, 10, 0.5)])}, cores=2)

    for arguments in ([], ["--json"]):
        monkeypatch.setattr("pronk.bench.tuning.tune", tune)
        code, out, err = cli("bench", "catch", *SHORT, "--out", folder / "mine.yaml", *arguments)
        assert (code, "1000" in out.replace(",", "")) == (2, True)
        assert "cannot write" in err
        folder.mkdir()
    assert json.loads(out)["file"] is None


def test_figures_that_a_run_cannot_keep_are_a_mistake(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*bench\.json: No such file"):
        keep({"trained": 1.0}, tmp_path / "gone")


def test_a_setting_in_braces_stays_too():
    assert list(flat(tree_of(["actors={count: 3, envs: 16}", "transport=grpc"]))) == [
        "actors.count",
        "actors.envs",
        "transport.name",
    ]


def test_ctrl_c_ends_with_what_was_measured(tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        process = start_pronk("bench", "catch", *TINY, *SHORT, stdout=stdout, stderr=stderr, cwd=tmp_path)
    seen = set()
    try:
        wait_until(lambda: "round 2 of 3" in err.read_text(), SECONDS, "the second round")
        wait_until(lambda: seen.update(descendants_of(process.pid)) or seen, SECONDS, "an actor")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
    finally:
        process.kill()
        process.wait()
    assert "slots" in out.read_text()
    assert "interrupted: these are the figures so far; no file was written" in err.read_text()
    assert "Traceback" not in err.read_text()
    assert not list(tmp_path.glob("*.yaml"))
    wait_until(lambda: not any(map(is_running, seen)), SECONDS, "the end of its processes")
