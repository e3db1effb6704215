import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import own_parts
import pytest

import pronk.cli
from pronk.cli.train import show_tables
from pronk.config import load_config, preset_names, record, resolve
from pronk.runs.checkpoint import load_checkpoint
from pronk.runs.directory import RunDirectory
from pronk.starting import train
from pronk.types import UserError

HERE = Path(__file__).parents[1] / "support"
SECONDS = 100  # after which a process counts as hanging
SHORT = ["transport=local", "run.total_steps=640"]


def spawned(*arguments, cwd, **environment):
    """A real `pronk` process, run to its end."""
    command = [sys.executable, "-m", "pronk", *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))  # the Pronk that is tested
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=cwd, env=environment)


# ---- help


def test_help_teaches_without_loading_torch(tmp_path):
    program = """
import contextlib, io, json, sys
from pronk.cli import main
texts = {}
for command in ["", "train", "eval", "watch", "runs", "plot", "dashboard", "bench", "show", "presets", "convert"]:
    sys.argv = ["pronk", *filter(None, [command]), "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main()
    texts[command] = " ".join(text.getvalue().split())
for rest in (["presets"], ["show", "catch"], ["--version"]):
    sys.argv = ["pronk", *rest]
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main()
    texts[rest[0] + " itself"] = text.getvalue()
print(json.dumps([texts, [name for name in ("torch", "gymnasium", "matplotlib", "PIL") if name in sys.modules]]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS)
    texts, loaded = json.loads(done.stdout)
    assert loaded == []
    teaches = {
        "": ["pronk train cartpole", "pronk eval last", "train", "eval", "dashboard", "bench", "show", "presets"],
        "train": [
            *("pronk train cartpole", "run.total_steps=", "--run-dir", "--resume", "--seed", "--quiet", "Ctrl-C"),
            *("--evaluate", "train_with_evaluate"),
        ],
        "convert": ["XingTian", "--out", "pronk train mine.yaml"],
        "watch": ["last", "--video", "--episodes", ".gif", ".mp4", "--deterministic", "--best", "--fps"],
        "runs": ["newest first", "--json", "killed", "DIR"],
        "plot": ["RUN...", "--out", ".svg", "--x", "steps, frames or time", "--only", "--smooth", "seed", "--title"],
        "eval": ["last", "--episodes", "--json", "--deterministic", "--best"],
        "dashboard": ["web page", "--port", "--open", "ssh", "Ctrl-C"],
        "bench": ["--json", "--seconds", "limit", "run directory", "pronk dashboard"],
        "show": ["YAML", "SECTION.KEY=VALUE"],
        "presets": ["presets"],
        "presets itself": preset_names(),
        "show itself": ["env:", "id: catch"],
        "--version itself": [f"pronk {pronk.__version__}\n"],
    }
    missing = {command: [word for word in words if word not in texts[command]] for command, words in teaches.items()}
    assert {command: words for command, words in missing.items() if words} == {}


def test_presets_are_listed_with_what_they_are(cli):
    code, out, err = cli("presets")
    assert (code, err) == (0, "")
    for name in preset_names():
        assert f"{name} " in out
        assert load_config(name).description in out  # also the brackets of pronk[atari]


@pytest.mark.parametrize("name", preset_names())
def test_what_show_prints_is_a_file_for_show(cli, name):
    overrides = ["env.kwargs.x='1e6'", "optimiser.learning_rate=1e-5", "run.stop_return=null", "network.hidden=[7]"]
    code, shown, err = cli("show", name, *overrides)
    auto = err.startswith("some settings stay auto")  # its package is not installed, or the environment takes no x
    assert code == 0
    assert auto or err.partition(":")[0] == ("no GPU" if name == "atari" else "")
    Path("shown.yaml").write_text(shown)
    assert cli("show", "shown.yaml") == (0, shown, err if auto else "")
    assert load_config("shown.yaml") == load_config(name, overrides)
    assert cli("show", "shown.yaml", "run.seed=5")[:2] == cli("show", name, *overrides, "run.seed=5")[:2]


# ---- mistakes


def assert_mistake(ended, *words):
    code, out, err = ended
    assert (code, out) == (2, ""), err
    assert len(err.splitlines()) == 1, err
    assert err.startswith("error: ")
    assert [word for word in words if word not in err] == [], err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "catch", "run.sead=3"], ["run.sead", "'run.seed'"]),
        (["train", "CartPol-v1", *SHORT], ["env.id", "'CartPol-v1'", "'CartPole-v1'"]),
    ],
)
def test_a_mistake_ends_a_process_with_one_line_and_code_two(tmp_path, arguments, words):
    done = spawned(*arguments, cwd=tmp_path)
    assert_mistake((done.returncode, done.stdout, done.stderr), *words)
    assert list(tmp_path.rglob("*")) == [], "a mistake leaves no run behind"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["catch", "--seed", "-1"], ["run.seed", "-1"]),
        (["cartpol"], ["'cartpol'", "'cartpole'"]),
        (["CartPole-v99"], ["env.id", "'CartPole-v99'", "'CartPole-v1'"]),
        (["Acrobot-v1", "env.vectorization=native"], ["env.vectorization", "Acrobot-v1", "sync"]),
        (["no_such_module:Thing"], ["no_such_module:Thing", "no module"]),
        ([":Thing"], ["':Thing'"]),
        (["own_parts:Diray"], ["'Diray'", "'Diary'"]),
        (["catch", "env="], ["env.id", "''"]),
        (["catch", "env.kwargs.rowz=5"], ["env.kwargs", "rowz"]),
        (["catch", "env.kwargs.rows=1"], ["rows", "1"]),
        (["catch", "network=actor_critc"], ["'actor_critc'", "'actor_critic'"]),
        (["catch", "network=own_parts:Liner"], ["own_parts:Liner", "'Linear'"]),
        (["catch", "loss=impla"], ["'impla'", "'impala'"]),
        (["catch", "loss=no_such_module:Thing"], ["no_such_module:Thing", "no module"]),
        (["catch", "learner.device=tpu"], ["learner.device", "'tpu'", "cpu"]),
        (["catch", "--resume"], ["no run directory", "catch"]),
        (["catch", "--resume", "--run-dir", "nowhere"], ["nowhere"]),
        (["catch", "--run-dir", "/dev/null"], ["/dev/null"]),
        (["catch", "--run-dir", "/dev/null/below"], ["/dev/null/below"]),
    ],
)
def test_a_training_that_cannot_start_is_explained_in_one_line(cli, arguments, words):
    assert_mistake(cli("train", *arguments, *SHORT), *words)


def test_a_directory_that_is_in_use_is_not_overwritten(cli, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    assert_mistake(cli("train", "catch", *SHORT, "--run-dir", "mine"), "mine", "resume the run")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_after_a_mistake_the_same_command_works_when_corrected(cli):
    assert_mistake(cli("train", "CartPol-v1", *SHORT, "--run-dir", "mine"), "CartPol-v1")
    assert cli("train", "CartPole-v1", *SHORT, "--run-dir", "mine", "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--episodes", "0"], ["episodes must be at least 1, got 0"]),
        (["run", "--seed", "-1"], ["seed must be at least 0, got -1"]),
        (["last"], ["runs/", "pronk train"]),
        (["nowhere"], ["no run directory nowhere"]),
        (["empty"], ["empty", "config.yaml"]),
        (["empty/file"], ["empty/file"]),
    ],
)
def test_an_evaluation_that_cannot_start_is_explained_in_one_line(cli, tmp_path, arguments, words):
    train(load_config("catch", SHORT), run_dir=tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "file").touch()
    assert_mistake(cli("eval", *arguments), *words)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_measurement_takes_time(cli, seconds):
    assert_mistake(cli("bench", "catch", *SHORT, "--seconds", seconds), "--seconds", str(seconds))


def test_a_start_longer_than_the_measurement_is_waited_for(cli, monkeypatch):
    """As an Atari preset's on a busy machine. Every environment here takes a second to be made."""
    monkeypatch.setattr("pronk.bench.rounds.WARM_UP_SECONDS", 0.2)
    slow = ("env.kwargs.seconds=1", "actors.count=1", "actors.envs=2", "learner.batch_size=2", "transport=local")
    code, out, err = cli("bench", "faulty:SlowToMake", *slow, "--json", "--seconds", "1", "--rounds", "2")
    assert code == 0, err
    figures = json.loads(out)
    assert figures["trained"] > 0
    assert figures["rounds"] == 2
    assert all(low <= figures[name] <= high for name, (low, high) in figures["spread"].items())


def test_a_run_is_measured_as_it_is_and_keeps_the_figures(cli, monkeypatch):
    monkeypatch.setattr("pronk.bench.rounds.WARM_UP_SECONDS", 0.2)
    train(load_config("catch", SHORT), run_dir="runs/mine")
    assert_mistake(cli("bench", "runs/mine", "run.seed=2"), "run.seed=2", "runs/mine/config.yaml")
    with RunDirectory(Path("runs/mine")).locked():
        assert_mistake(cli("bench", "runs/mine"), "runs/mine", "being trained")
    code, out, _ = cli("bench", "last", "--json", "--seconds", "1", "--rounds", "1")
    assert code == 0
    assert json.loads(Path("runs/mine/bench.json").read_text()) == json.loads(out)


@pytest.mark.parametrize(
    ("load", "cores", "told"),
    [
        (0.2, 2, ""),
        (1.1, 2, "this machine is not quiet (1.1 of 2 cores busy): the figures will be too low\n"),
        (0.6, 1, "this machine is not quiet (0.6 of 1 core busy): the figures will be too low\n"),
        (0.9, None, "this machine is not quiet (0.9 of 1 core busy): the figures will be too low\n"),
    ],
)
def test_a_machine_with_other_work_is_said_beside_the_figures(cli, monkeypatch, load, cores, told):
    figures = {"trained": 1.0}
    monkeypatch.setattr("pronk.bench.measure", lambda config, seconds, say, rounds: say("a word") or figures)
    monkeypatch.setattr("pronk.cli.bench.busy_cores", lambda seconds: load)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    code, out, err = cli("bench", "catch", "--json")
    assert (code, json.loads(out), err) == (0, figures | {"load": load, "busy": bool(told)}, told + "a word\n")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["train"], ["train", "catch", "--nonsense"], ["eval", "--episodes", "x"]]
)
def test_a_wrong_command_line_is_a_mistake_too(cli, arguments):
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert "error:" in err
    assert "Traceback" not in err


# ---- failures: the root cause, and nothing of Pronk's own inside


def assert_failure(ended, *words):
    code, out, err = ended
    assert (code, out) == (1, ""), err
    assert err.startswith("failed: ")
    assert [word for word in words if word not in err] == [], err
    assert "pronk/cli" not in err


@pytest.mark.parametrize(
    ("part", "cause"),
    [
        (["network=own_parts:broken_network"], "no such layer"),
        (["loss=own_parts:BrokenLoss", "loss.kwargs.weight=1"], "no such gradient"),
        (["network=own_parts:Linear"], "KeyError: 'gain'"),
    ],
)
def test_a_part_of_ones_own_that_fails_shows_its_own_error(cli, part, cause):
    assert_failure(cli("train", "own_parts:Diary", *SHORT, *part, "--quiet"), "own_parts.py", cause)


def test_an_environment_that_fails_shows_its_own_error_in_every_command(cli, monkeypatch):
    assert cli("train", "own_parts:Diary", *SHORT, "--run-dir", "run", "--quiet")[0] == 0
    monkeypatch.setattr(own_parts.Diary, "broken", True)
    assert_failure(cli("train", "own_parts:Diary", *SHORT, "--quiet"), "own_parts.py", "the ink is dry")
    assert_failure(cli("eval", "run"), "own_parts.py", "the ink is dry")


def test_a_module_that_fails_on_import_shows_its_own_error(cli, tmp_path):
    (tmp_path / "fails_when_imported.py").write_text("raise RuntimeError('half a module')")
    for part in (["fails_when_imported:Thing"], ["catch", "network=fails_when_imported:Thing"]):
        assert_failure(cli("train", *part, *SHORT), "fails_when_imported.py", "half a module")


@pytest.mark.parametrize(
    "huge", ["actors.unroll_length=1e15", "learner.batch_size=1e15", "network.hidden=[1000000000000]"]
)
def test_what_no_memory_can_hold_is_said(cli, huge):
    code, _, err = cli("train", "catch", *SHORT, huge, "--quiet")
    assert code in (1, 2)
    assert "memory" in err or huge.partition("=")[0] in err
    assert "pronk/cli" not in err


# ---- a run from end to end


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A quiet run with two actor processes, in a directory of the user's choice."""
    folder = tmp_path_factory.mktemp("shared")
    arguments = [
        "catch",
        "run.total_steps=3200",
        "actors.count=2",
        "run.stop_return=null",
        "run.log_every_seconds=0.05",
    ]
    return folder / "mine", spawned("train", *arguments, "--run-dir", folder / "mine", "--quiet", cwd=folder)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A talkative run in one process, in the directory that Pronk chooses."""
    folder = tmp_path_factory.mktemp("local")
    arguments = ["catch", "transport=local", "run.total_steps=3200", "run.log_every_seconds=0.05", "--seed", "3"]
    done = spawned("train", *arguments, cwd=folder)
    (run,) = (folder / "runs").iterdir()
    return run, done


@pytest.fixture(params=["shared", "local"])
def finished(request, shared, local):
    run, done = {"shared": shared, "local": local}[request.param]
    assert done.returncode == 0, done.stderr
    return run


def test_quiet_says_nothing(shared):
    _, done = shared
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_run_tells_how_it_went_and_what_to_do_next(local):
    run, done = local
    name = f"runs/{run.name}"
    assert done.stderr == ""
    assert run.name.startswith("catch-")
    words = ["catch: ", " / 3,200 steps", "3,200 steps in", "Finished.", "mean return", f"pronk eval {name}\n"]
    words += [f"pronk watch {name}\n", f"pronk plot {name}\n", f"tensorboard --logdir {name}/tensorboard\n"]
    words += [f"import pronk; policy = pronk.load('{name}')\n"]
    told = "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"
    assert [word for word in words if word not in told] == [], told


def test_the_run_directory_is_complete(finished):
    inside = {path.name for path in finished.iterdir()}
    assert inside == {"config.yaml", "metrics.jsonl", "summary.json", "lag.json", "checkpoints", "tensorboard", "logs"}
    assert [file.stat().st_size > 0 for file in (finished / "tensorboard").iterdir()] == [True]
    assert {file.name for file in (finished / "checkpoints").iterdir()} == {"000000003200.pt", "best.pt"}


def test_every_actor_process_has_a_log(shared, local):
    logs = sorted((shared[0] / "logs").glob("*.log"))
    assert [log.name for log in logs] == ["actor-000.log", "actor-001.log"]
    assert all("starts" in log.read_text() for log in logs)
    assert list((local[0] / "logs").glob("*.log")) == []


def test_the_configuration_of_a_run_is_resolved_and_loads_again(finished):
    config = load_config(finished / "config.yaml")
    assert config == record(config, resolve(config))
    assert isinstance(config.actors.count, int)
    assert config.run.total_steps == 3200
    assert load_checkpoint(finished / "checkpoints" / "best.pt")["config"] == config.model_dump()


def test_metrics_add_up(finished):
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    last = lines[-1]
    wanted = {"wall_seconds", "env_steps", "updates", "episodes", "episode_return", "steps_per_second"}
    assert all(line.keys() >= wanted | {"policy_lag", "loss", "entropy"} for line in lines)
    assert (last["env_steps"], last["updates"]) == (3200, 10)
    assert [line["env_steps"] for line in lines] == [320 * line["updates"] for line in lines]
    for name in ("wall_seconds", "env_steps", "episodes"):
        values = [line[name] for line in lines]
        assert values == sorted(values)
    assert -1 <= last["episode_return"] <= 1
    assert 0 < last["entropy"] <= 1.0987  # log 3
    assert last["steps_per_second"] > 0
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["outcome"] == "finished"
    assert {name: summary[name] for name in last} == last


def test_one_process_plays_on_policy_and_counts_every_episode(local):
    lines = [json.loads(line) for line in (local[0] / "metrics.jsonl").read_text().splitlines()]
    assert {line["policy_lag"] for line in lines} == {0.0}
    assert lines[-1]["episodes"] == 16 * (200 // 9)  # 200 steps of 16 boards; a ball falls for 9
    assert load_config(local[0] / "config.yaml").run.seed == 3


def test_eval_prints_json_or_a_sentence(local, cli, monkeypatch):
    run, _ = local
    done = spawned("eval", "last", "--episodes", "10", "--json", cwd=run.parent.parent)
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert summary.keys() >= {"episodes", "mean", "std", "min", "max"}
    assert (summary["episodes"], summary["mean_length"]) == (10, 9.0)
    assert -1 <= summary["min"] <= summary["mean"] <= summary["max"] <= 1
    code, told, err = cli("eval", run, "--episodes", "10")
    assert (code, err) == (0, "")
    assert f"mean return {summary['mean']:.2f} " in told
    assert "over 10 episodes" in told


def test_what_an_environment_prints_is_not_part_of_the_result(tmp_path):
    arguments = ["faulty:Talkative", "transport=local", "run.total_steps=500", "--run-dir", "run"]
    assert spawned("train", *arguments, "--quiet", cwd=tmp_path).returncode == 0
    done = spawned("eval", "run", "--episodes", "3", "--json", "--trust", cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["episodes"]) == (0, 3)
    assert done.stderr.count("a new corridor") >= 9


@pytest.mark.parametrize(("outcome", "advice"), [("solved", "run.stop_return=null"), ("interrupted", "train longer")])
def test_a_profile_without_its_trace_is_explained_once(outcome, advice, tmp_path, capsys):
    show_tables(tmp_path, outcome)
    assert capsys.readouterr().out == ""
    for name in ("actor-000", "learner"):
        (tmp_path / f"{name}.txt").write_text("share  part\n")
    (tmp_path / "learner.json.gz").touch()
    show_tables(tmp_path, outcome)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "Where" in line] == [
        "Where the time of actor-000 went:",
        "Where the time of learner went:",
    ]
    assert lines[-1].startswith("The run ended before all traces were written")
    assert advice in lines[-1]
    (tmp_path / "actor-000.json.gz").touch()
    show_tables(tmp_path, outcome)
    assert "traces" not in capsys.readouterr().out


def test_eval_without_a_standard_output_is_played_all_the_same(local, monkeypatch):
    run, _ = local
    monkeypatch.setattr(sys, "argv", ["pronk", "eval", str(run), "--episodes", "1"])
    monkeypatch.setattr(sys, "path", sys.path[:])
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)  # as with `>&-`
        with pytest.raises(SystemExit) as ended:
            pronk.cli.main()
    assert ended.value.code == 0


def test_eval_can_be_deterministic_and_seeded(shared, cli):
    run, _ = shared
    for options in ([], ["--deterministic"], ["--best"], ["--seed", "7"]):
        answers = [json.loads(cli("eval", run, "--episodes", "30", "--json", *options)[1]) for _ in range(2)]
        assert answers[0] == answers[1]
    sampled, likeliest = (json.loads(cli("eval", run, "--json", *o)[1]) for o in ([], ["--deterministic"]))
    assert sampled != likeliest


def test_the_way_to_a_run_is_printed_as_it_is(cli):
    code, told, _ = cli("train", "catch", *SHORT, "--run-dir", "a [best] run")
    assert code == 0
    assert "pronk.load('a [best] run')" in told


# ---- one's own parts, without any change in Pronk


def test_own_environment_network_and_loss_train_from_the_current_directory(tmp_path):
    shutil.copy(HERE / "own_parts.py", tmp_path / "my_task.py")
    parts = ["my_task:Diary", "network=my_task:Linear", "network.kwargs.gain=0.5"]
    parts += ["loss=my_task:Reinforce", "loss.kwargs={weight: 0.01}", "env.kwargs.length=5"]
    arguments = ["train", *parts, "run.total_steps=3200", "actors.count=1", "--run-dir", "run", "--quiet"]
    done = spawned(*arguments, cwd=tmp_path, PYTHONPATH="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert "my_score" in last
    assert (last["env_steps"], last["episode_length"]) == (7 * 4 * 128, 5.0)  # whole batches
    assert 0 <= last["episode_return"] <= 31
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("0*.pt")
    assert set(load_checkpoint(checkpoint)["learner"]["network"]) == {"only_layer.weight", "only_layer.bias"}


def test_an_own_loss_teaches_an_own_network(tmp_path):
    overrides = ["transport=local", "run.total_steps=20000", "env.kwargs.length=1", "optimiser.schedule=constant"]
    overrides += ["network=own_parts:Linear", "network.kwargs.gain=0", "loss=own_parts:Reinforce"]
    config = load_config("own_parts:Diary", [*overrides, "loss.kwargs.weight=1", "optimiser.learning_rate=0.1"])
    assert train(config, run_dir=tmp_path / "run")["episode_return"] > 0.9


def test_an_actor_process_gets_the_kwargs_that_the_user_wrote(tmp_path):
    config = load_config("own_parts:Diary", ["env.kwargs={table: {1: 2}}", "actors.count=1", "run.total_steps=640"])
    assert train(config, run_dir=tmp_path / "run")["outcome"] == "finished"


def test_a_batch_of_more_unrolls_than_there_are_slots_is_refused_and_not_waited_for(tmp_path):
    sizes = ["learner.batch_size=128", "actors.envs=16", "actors.count=1", "actors.slots=2", "run.total_steps=3200"]
    with pytest.raises(UserError, match=r"learner\.batch_size.*128"):
        train(load_config("catch", sizes), run_dir=tmp_path / "run")
