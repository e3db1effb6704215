"""A run that somebody else made imports and calls nothing, unless the user trusts its author."""

import os
import shutil
import stat

import pytest
import yaml

from pronk.config import load_config
from pronk.evaluation.playing import evaluate
from pronk.evaluation.trained_policy import load
from pronk.exports import export
from pronk.runs.checkpoint import load_checkpoint, save_tensors
from pronk.runs.directory import RunDirectory
from pronk.runs.trust import code_to_play, code_to_train, known_file, remember, unknown
from pronk.sharing import push
from pronk.starting import train
from pronk.types import UserError
from pronk.watching import watch

SHORT = ["transport=local", "run.total_steps=640", "actors.envs=8", "learner.batch_size=8", "network.hidden=[16]"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    train(load_config("cartpole", SHORT), run_dir=path, say=lambda line: None)
    return path


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """An account that has trained nothing yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def foreign(trained, path, changes):
    """A copy of a run whose configuration names other things."""
    shutil.copytree(trained, path)
    file = path / "config.yaml"
    tree = yaml.safe_load(file.read_text())
    for section, keys in changes.items():
        tree[section] |= keys
    file.write_text(yaml.safe_dump(tree))
    for checkpoint in RunDirectory(path).checkpoints.folder.glob("*.pt"):
        state = load_checkpoint(checkpoint)
        for section, keys in changes.items():
            state["config"][section] |= keys
        save_tensors(checkpoint, state)
    return path


@pytest.fixture
def hostile(trained, tmp_path, stranger):
    """A run that makes a file if its environment is made; the run and the file."""
    made = tmp_path / "made"
    env = {"id": "subprocess:check_call", "kwargs": {"args": ["touch", str(made)]}}
    return foreign(trained, tmp_path / "hostile", {"env": env}), made


@pytest.mark.parametrize(
    "use",
    [
        lambda run, **trust: evaluate(run, 1, **trust),
        lambda run, **trust: load(run, **trust),
        lambda run, **trust: load(run, best=True, **trust),
        lambda run, **trust: export(run, "torchscript", **trust),
        lambda run, **trust: watch(run, text=True, **trust),
        lambda run, **trust: push(run, str(run.parent / "shared"), **trust),
    ],
    ids=["evaluate", "load", "load best", "export", "watch", "push"],
)
def test_what_a_foreign_run_names_is_called_only_if_its_author_is_trusted(hostile, use):
    run, made = hostile
    with pytest.raises(UserError, match=r"subprocess:check_call \(env.id\).*trust=True"):
        use(run)
    assert not made.exists()
    with pytest.raises(Exception):  # noqa: B017 - it is no environment
        use(run, trust=True)
    assert made.exists()  # or the test above would show nothing


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "RUN"),
        ("watch", "RUN", "--text"),
        ("export", "RUN"),
        ("push", "RUN", "./shared"),
        ("bench", "RUN"),
        ("train", "RUN", "--resume"),
        ("train", "cartpole", "-t", "evaluate", "--run-dir", "RUN"),
        ("learner", "RUN", "--resume"),
    ],
    ids=" ".join,
)
def test_every_command_that_opens_a_run_refuses_in_one_line(hostile, cli, command):
    run, made = hostile
    code, _, err = cli(*(str(run) if word == "RUN" else word for word in command))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("error: ")
    assert "subprocess:check_call" in err
    assert "--trust" in err
    assert not made.exists()


def test_an_exported_policy_is_a_run_too(hostile, tmp_path):
    pytest.importorskip("safetensors")
    import json

    import torch
    from safetensors.torch import save_file

    run, made = hostile
    state = load_checkpoint(RunDirectory(run).checkpoints.newest())
    facts = {"config": {key: state["config"][key] for key in ("env", "network")}}
    weights = {name: tensor for name, tensor in state["learner"]["network"].items() if isinstance(tensor, torch.Tensor)}
    save_file(weights, tmp_path / "policy.safetensors", {"pronk": json.dumps(facts)})
    with pytest.raises(UserError, match="subprocess:check_call"):
        load(tmp_path / "policy.safetensors")
    assert not made.exists()


@pytest.mark.parametrize("kind", ["sweep", "population"])
def test_a_foreign_sweep_or_population_is_refused(kind, cli, tmp_path, stranger):
    folder = tmp_path / "many"
    folder.mkdir()
    options = {
        "sweep": {"grid": {"loss.discount": [0.9, 0.99]}},
        "population": {"size": 2, "priors": {"optimiser.learning_rate": {"low": 1e-4, "high": 1e-2}}},
    }
    env = {"id": "subprocess:check_call", "kwargs": {"args": ["touch", str(tmp_path / "made")]}}
    (folder / f"{kind}.yaml").write_text(yaml.safe_dump({"env": env, kind: options[kind]}))
    code, _, err = cli(kind, folder, "--resume")
    assert (code, err.count("\n")) == (2, 1)
    assert "subprocess:check_call" in err
    assert not (tmp_path / "made").exists()


def test_ones_own_runs_open_without_asking(tmp_path, stranger):
    run = tmp_path / "run"
    train(
        "own_parts:Diary",
        [*SHORT, "loss=own_parts:Reinforce", "loss.kwargs={weight: 1.0}"],
        run_dir=run,
        say=lambda line: None,
    )
    assert evaluate(run, 1).returns
    moved = run.rename(tmp_path / "elsewhere")
    assert evaluate(moved, 1).returns
    train("own_parts:Diary", [*SHORT, "run.total_steps=1280"], run_dir=moved, resume=True, say=lambda line: None)


def test_other_arguments_are_another_thing(stranger):
    known = load_config("my_env:MyEnv", ["env.kwargs={a: 1, b: [2, 3]}"])
    remember(known, pytest.fail)
    assert not unknown(code_to_train(load_config("my_env:MyEnv", ["env.kwargs={b: [2, 3], a: 1}"])))
    assert unknown(code_to_train(load_config("my_env:MyEnv", ["env.kwargs={a: 2, b: [2, 3]}"])))


def test_only_its_owner_can_read_or_write_what_is_known(stranger):
    remember(load_config("my_env:MyEnv"), pytest.fail)
    file = known_file()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "my_env" not in file.read_text()
    remember(load_config("my_env:MyEnv"), pytest.fail)
    assert len(file.read_text().splitlines()) == 1


def test_a_home_that_cannot_be_written_is_reported(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    said = []
    remember(load_config("my_env:MyEnv"), said.append)
    assert len(said) == 1
    assert "my_env:MyEnv" in said[0]
    remember(load_config("cartpole"), pytest.fail)  # names nothing


@pytest.mark.parametrize(
    "name",
    [
        *("CartPole-v1", "catch", "ALE/Pong-v5", "ale_py:ALE/Pong-v5", "MiniGrid-Empty-5x5-v0", "envpool:Ant-v4"),
        "pettingzoo:butterfly.pistonball_v6",
    ],
)
def test_known_families_need_no_trust(name):
    assert not code_to_play(load_config("cartpole", [f"env.id={name}"]))


@pytest.mark.parametrize(
    "name",
    [
        *("subprocess:check_call", "pronk.config.named:load", "ale_py:os", "os:Id-v0", "GymV21Environment-v0"),
        *("pettingzoo:own_parts", "pettingzoo:butterfly.pistonball_v6:os", "pettingzoo:os:system", "gymnasium:make"),
    ],
)
def test_everything_else_needs_trust(name):
    assert code_to_play(load_config("cartpole", [f"env.id={name}"]))


def test_every_setting_that_names_code_is_looked_at():
    config = load_config(
        "cartpole",
        [
            *("env.tasks=[CartPole-v1, {name: b, id: a:B}]", "env.wrappers=[{c:D: {e: 1}}]", "network=f:G", "loss=h:I"),
            *("actors.inference=j:K", "run.sinks=[l:M, tensorboard]"),
        ],
    )
    assert [code.address for code in code_to_train(config)] == ["c:D", "a:B", "f:G", "h:I", "j:K", "l:M"]
    assert [code.address for code in code_to_play(config)] == ["c:D", "a:B", "f:G"]


def test_these_tests_leave_the_users_own_file_alone():
    assert not str(known_file()).startswith(os.path.expanduser("~/.config"))


def test_a_search_that_continues_from_a_pickle_asks_for_trust(tmp_path, cli):
    search = {"search": {"optimiser.learning_rate": {"low": 1e-4, "high": 1e-2}}, "trials": 2, "sampler": "cmaes"}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"base": "catch", "sweep": search}))
    code, out, err = cli("sweep", tmp_path, "--resume")
    assert (code, out) == (2, "")
    assert "continues from a pickle" in err
    assert "allow it with --trust" in err
    assert cli("sweep", tmp_path, "--resume", "--trust", "--dry-run")[0] == 0
