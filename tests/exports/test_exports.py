"""Every format exports every kind of policy, and the program beside the file acts as `pronk.load` does."""

from __future__ import annotations

import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from own_parts import Album, Diary
from safetensors import safe_open
from safetensors.numpy import save_file
from scripted import Sampled

from pronk import cli
from pronk.config import Config, load_config, resolve
from pronk.envs.probing import spec_of
from pronk.evaluation.trained_policy import load
from pronk.exports import FORMATS, Exported, export
from pronk.exports.comparing import Sample, largest_difference
from pronk.exports.exporting import LARGEST_DIFFERENCE
from pronk.metrics import Metrics
from pronk.runs.directory import RunDirectory
from pronk.runs.trust import remember
from pronk.starting import learner_for
from pronk.types import Failure, UserError

SMALL = ["transport=local", "network.hidden=[16]"]
LSTM = ["network.core=lstm", "network.core_size=16"]
LAST = ["network.last_action=true", "network.last_reward=true"]
CASES = {
    "mlp": ["CartPole-v1"],
    "reals": ["Pendulum-v1"],
    "reals, lstm, last": ["Pendulum-v1", *LSTM, *LAST],
    "labels, start, lstm, last": ["own_parts:Diary", "env.kwargs.view=dict", *LSTM, *LAST],
    "tuple": ["own_parts:Diary", "env.kwargs.view=tuple", "network.activation=relu"],
    "mask": ["examples.environments:Forbidden"],
    "many choices, pictures, last": ["own_parts:Album", "env.kwargs.places=3", "network.torso=small", *LAST],
    "reals, one bound, colour first": [
        *("own_parts:Album", "env.kwargs={shape: [3, 42, 42], dtype: float32, reals: 2}", "network.torso=compact"),
        *LSTM,
    ],
    "stack of colour": ["own_parts:Album", "env.kwargs.shape=[2, 84, 84, 3]", "network.torso=shallow"],
    "nature": ["own_parts:Album", "env.kwargs.shape=[84, 84, 1]", "network.torso=nature"],
    "opt_cnn": ["own_parts:Album", "env.kwargs.shape=[84, 84, 1]", "network.torso=opt_cnn"],
    "deep, lstm": ["own_parts:Album", "env.kwargs.shape=[32, 32, 3]", "network.torso=deep", *LSTM],
    "reals, gru": ["Pendulum-v1", "network.core=gru", "network.core_size=16"],
    "codes, attention, last": [
        *("own_parts:Album", "env.kwargs.shape=[7, 7, 3]", "network.core=attention", "network.core_size=32"),
        *("network.core_window=4", *LAST),
    ],
    "text": ["scripted:Sampled", "env.kwargs={observation: text_and_number, action: multi_discrete}"],
    "own": ["own_parts:Album", "network=own_parts:Ticking"],
}
IN_ONNX = {
    *("labels, start, lstm, last", "many choices, pictures, last", "reals, one bound, colour first", "mask"),
    *("codes, attention, last", "text"),
}
WHOLE = [(case, to) for case in CASES for to in FORMATS]
SHORT = [(case, to) for case, to in WHOLE if to != "onnx" or case in IN_ONNX]  # each costs seconds


def a_run(path: Path, source: str, *overrides: str) -> Config:
    """A run directory with a checkpoint of random weights, large enough to decide something."""
    config = load_config(source, [*SMALL, *overrides])
    learner = learner_for(resolve(config), spec_of(config))
    with torch.no_grad():
        for name, weight in learner.network.named_parameters():
            if "head" in name and name.endswith("weight"):
                weight.mul_(1000.0)
            elif name.endswith(("bias", "log_std")):
                weight.normal_(std=0.3)
    state = {"learner": learner.state(), "metrics": Metrics(1).state(), "best": (False, 0.0)}
    remember(config, print)
    run = RunDirectory.create(config, path, "run")
    run.checkpoints.save({**state, "config": config.model_dump()}, keep=3, best=True)
    return config


@pytest.fixture(scope="module")
def exported(tmp_path_factory: Any) -> Callable[[str, str], Exported]:
    """Made once for all tests: (case, format) -> what was exported."""

    @functools.cache
    def run_of(case: str) -> Path:
        path = tmp_path_factory.mktemp("runs") / "run"
        a_run(path, *CASES[case])
        return path

    return functools.cache(lambda case, to: export(run_of(case), to))


def check(done: Exported) -> None:
    assert 0.0 <= done.difference <= LARGEST_DIFFERENCE
    compile(done.program.read_text(), str(done.program), "exec")
    assert sorted(path.name for path in done.file.parent.glob(f"{done.file.name}*")) == [done.file.name]
    assert not list(done.file.parent.glob(".*"))


@pytest.mark.parametrize(("case", "to"), SHORT)
def test_every_policy_leaves_in_every_format(case: str, to: str, exported: Callable[[str, str], Exported]) -> None:
    check(exported(case, to))


@pytest.mark.slow
@pytest.mark.parametrize(("case", "to"), sorted(set(WHOLE) - set(SHORT)))
def test_every_other_policy_leaves_too(case: str, to: str, exported: Callable[[str, str], Exported]) -> None:
    check(exported(case, to))


# ---- the program beside the file

ACTS = """
import json, pickle, runpy, sys
import numpy as np
if not sys.argv[1].endswith("safetensors.py"):
    sys.modules["pronk"] = None  # cannot be imported
programs = [runpy.run_path(program)["act"] for program in sys.argv[1:]]
plays = zip(programs, pickle.load(sys.stdin.buffer))
print(json.dumps([[np.asarray(act(**moment)).tolist() for moment in moments] for act, moments in plays]))
"""


def acted(folder: Path, plays: list[tuple[Path, list[dict[str, Any]]]]) -> list[list[Any]]:
    """The actions of programs, in one other process; without Pronk, unless they only load weights."""
    folder.mkdir()
    command = [sys.executable, "-c", ACTS, *(str(program) for program, _ in plays)]
    moments = pickle.dumps([moments for _, moments in plays])
    done = subprocess.run(command, input=moments, capture_output=True, timeout=100, cwd=folder, env=WITH_SUPPORT)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


WITH_SUPPORT = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # for own_parts


def episode(env: Any, first: bool, reward: bool, count: int = 12) -> list[dict[str, Any]]:
    """Observations of two episodes as arguments of `act`."""
    env.action_space.seed(5)
    moments: list[dict[str, Any]] = []
    for step in range(count):
        answer = env.step(env.action_space.sample()) if step else env.reset(seed=5)
        moment: dict[str, Any] = {"observation": answer[0]}
        if first:
            moment["first"] = step in (0, 7)
        if reward:
            moment["reward"] = float(np.sin(step) * 2)
        moments.append(moment)
    return moments


GAMES: dict[str, Callable[[], Any]] = {
    "labels, start, lstm, last": lambda: Diary("dict"),
    "many choices, pictures, last": lambda: Album(places=3),
    "text": lambda: Sampled("text_and_number", "multi_discrete"),
}


@pytest.mark.parametrize("to", FORMATS)
def test_the_program_beside_it_acts_as_pronk_does(
    to: str, exported: Callable[[str, str], Exported], tmp_path: Path
) -> None:
    plays, expected = [], []
    for case, game in GAMES.items():
        done = exported(case, to)
        folder = tmp_path / case[0]
        folder.mkdir()
        for file in (done.file, done.program):
            shutil.copy(file, folder)  # anywhere, but together
        moments = episode(game(), first=case != "text", reward=case != "text")
        plays.append((folder / done.program.name, moments))
        expected.append(actions_of(load(done.file.parents[1], deterministic=True), moments))
        assert len({str(action) for action in expected[-1]}) > 1
    assert acted(tmp_path / "elsewhere", plays) == expected


def actions_of(player: Any, moments: list[dict[str, Any]]) -> list[Any]:
    """What `pronk.load` plays."""
    actions = []
    for moment in moments:
        if moment.get("first"):
            player.reset()
        actions.append(np.asarray(player.act(moment["observation"], moment.get("reward", 0.0))).tolist())
    return actions


def test_setting_first_changes_the_actions(tmp_path: Path) -> None:
    run = tmp_path / "run"
    a_run(run, *CASES["own"], "env.kwargs.options=7")
    program = export(run, "torchscript").program
    moments = episode(Album(options=7), first=True, reward=False)
    never = [{**moment, "first": False} for moment in moments]
    one, other = acted(tmp_path / "elsewhere", [(program, moments), (program, never)])
    assert one[:7] == other[:7]
    assert one[7:] != other[7:]


@pytest.mark.parametrize(("case", "to"), [("mlp", "onnx"), ("tuple", "torchscript"), ("mask", "torchscript")])
def test_the_program_runs_as_it_is(case: str, to: str, exported: Callable[[str, str], Exported]) -> None:
    program = exported(case, to).program
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=WITH_SUPPORT)
    assert done.stdout.strip().isdigit(), done.stderr
    assert len([line for line in program.read_text().splitlines() if line.strip()]) < 35


# ---- what the file says of itself


def test_every_file_says_what_goes_in_and_out(exported: Callable[[str, str], Exported]) -> None:
    files = {to: exported("labels, start, lstm, last", to).file for to in FORMATS}
    run = files["onnx"].parents[1]
    texts = {"onnx": {prop.key: prop.value for prop in onnx.load(files["onnx"]).metadata_props}["pronk"]}
    extra = {"pronk.json": ""}
    torch.jit.load(files["torchscript"], _extra_files=extra)
    texts["torchscript"] = extra["pronk.json"]
    with safe_open(files["safetensors"], "np") as file:
        texts["safetensors"] = file.metadata()["pronk"]
        assert set(file.keys()) == set(RunDirectory.open(run).checkpoints.restore()[0]["learner"]["network"])
    for text in texts.values():
        facts = json.loads(text)
        assert facts["environment"] == "own_parts:Diary"
        assert facts["inputs"]["observation.label"] == {"shape": ["batch"], "dtype": "int64", "labels": [4]}
        assert set(facts["inputs"]) == {
            *("observation.here", "observation.label", "first", "reward"),
            *("state.hidden", "state.cell", "state.last_action"),
        }
        assert set(facts["outputs"]) == {"action", "logits", "next.hidden", "next.cell", "next.last_action"}


def test_no_path_of_this_machine_is_in_an_onnx_file(exported: Callable[[str, str], Exported]) -> None:
    content = exported("mask", "onnx").file.read_bytes()
    assert b"site-packages" not in content
    assert str(Path(__file__).parents[2]).encode() not in content


# ---- what cannot be


def test_what_does_not_act_alike_is_refused(tmp_path: Path) -> None:
    a_run(tmp_path / "run", "own_parts:Diary", "network=own_parts:Fickle", "network.kwargs.gain=1")
    with pytest.raises(Failure, match=r"differs from the trained one by .*nothing was written"):
        export(tmp_path / "run", "torchscript")
    assert list((tmp_path / "run" / "export").iterdir()) == []


@pytest.mark.slow
def test_what_cannot_be_in_onnx_is_said_in_one_line(tmp_path: Path, capfd: Any) -> None:
    a_run(tmp_path / "run", "own_parts:Diary", "network=own_parts:Fickle", "network.kwargs.gain=1")
    with pytest.raises(Failure, match=r"cannot export this network to ONNX|differs from the trained one") as failed:
        export(tmp_path / "run", "onnx")
    assert "\n" not in str(failed.value)
    assert capfd.readouterr() == ("", "")


def test_another_choice_counts_by_how_much_less_likely_it_is(tmp_path: Path) -> None:
    """A tie may fall either way; a choice that is none may not."""

    class Policy:
        action = type("Spec", (), {"choices": (2,), "shape": ()})

    def difference(scores: list[float], action: int) -> float:
        logits = np.array([scores], np.float32)
        expected = {"action": np.array([7]), "logits": logits}  # 7 is the first choice in the environment's units
        outputs = {"action": np.array([action]), "logits": logits}
        return largest_difference(lambda _: outputs, Policy, [Sample({}, expected)])  # type: ignore[arg-type]

    assert difference([1.0, 1.0], 8) == 0.0
    assert difference([1.0, 0.5], 7) == 0.0
    assert difference([1.0, 0.5], 8) == 0.5
    assert difference([1.0, 1.0], 9) == np.inf


@pytest.mark.parametrize(("to", "package"), [("onnx", "onnxscript"), ("safetensors", "safetensors")])
def test_a_missing_package_is_said_with_its_extra(to: str, package: str, tmp_path: Path, monkeypatch: Any) -> None:
    a_run(tmp_path / "run", "CartPole-v1")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"the {to} format needs the package {package}: pip install 'pronk\[export\]'"):
        export(tmp_path / "run", to)


def test_mistakes_are_said(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"no export format 'onx' \(did you mean 'onnx'\?\); there are onnx, torchscript"
    ):
        export(tmp_path / "run", "onx")
    with pytest.raises(UserError, match="no run directory"):
        export(tmp_path / "run")
    a_run(tmp_path / "run", "CartPole-v1")
    with pytest.raises(UserError, match="is a directory; name a file"):
        export(tmp_path / "run", "torchscript", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        export(tmp_path / "run", "torchscript", tmp_path / "file" / "policy.pt")
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():
        checkpoint.unlink()
    with pytest.raises(UserError, match="no checkpoint"):
        export(tmp_path / "run")


def test_a_safetensors_file_that_is_not_an_exported_policy_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torn.safetensors").write_bytes(b"\xff" * 20)
    save_file({"weight": np.zeros(3)}, tmp_path / "other.safetensors")
    for name, words in {
        "torn": "cannot read",
        "gone": "cannot read",
        "other": "was not written by `pronk export`",
    }.items():
        with pytest.raises(UserError, match=words):
            load(tmp_path / f"{name}.safetensors")


# ---- the command


def test_the_command_tells_what_it_did(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def pronk(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pronk", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code or 0, *capsys.readouterr()  # type: ignore[return-value]

    monkeypatch.chdir(tmp_path)
    a_run(tmp_path / "runs" / "mine", "Pendulum-v1", *LSTM)
    code, out, err = pronk("export", "mine", "--to", "torchscript", "--out", "here.pt", "--best")
    assert (code, err) == (0, "")
    assert out.startswith("here.pt (")
    for words in ("over 256 observations", "state.cell", "float32 [batch, 16]", ": here_torchscript.py", "note: "):
        assert words in out
    code, out, err = pronk("export", "last", "--to", "safetensors", "--json")
    told = json.loads(out)
    assert (code, err, told["observations"]) == (0, "", 256)
    assert told["inputs"]["first"] == {"shape": [], "dtype": "bool", "categories": [], "words": 0}
    assert Path(told["file"]).is_file()
    code, out, err = pronk("export", "mine", "--to", "onx")
    assert (code, out, err.count("\n")) == (2, "", 1)
