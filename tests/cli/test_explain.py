"""`pronk explain`, `pronk show --schema`, shell completion, and help that reads well."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.main import get_command

from pronk.cli import completion
from pronk.cli.shell import app
from pronk.config import Config, plain_yaml, preset_names
from pronk.config.loading import PRESETS, load_config
from pronk.config.reference import find_knobs, knobs, schema, sections
from pronk.config.trees import flat

ROOT = Path(__file__).parents[2]


def test_every_knob_is_explained() -> None:
    listed = {knob.path for knob in knobs()}
    assert {"loss.entropy_cost", "env.atari.size", "actors.central.threads"} <= listed
    for path in flat(Config().model_dump(exclude={"description"})):
        assert any(path == each or path.startswith(f"{each}.") for each in listed), path
    assert [knob.path for knob in knobs() if len(knob.meaning) < 20] == []


def test_explain(cli: Any) -> None:
    code, out, _ = cli("explain", "loss.entropy_cost")
    assert code == 0
    assert "entropy bonus" in out
    assert "default: auto" in out
    assert "values:  a number, at least 0; or auto" in out
    assert "run.seed" in cli("explain", "seed")[1]
    assert "optimiser.learning_rate" in cli("explain", "lr")[1]
    assert set(sections()) <= set(cli("explain")[1].split())
    assert len(find_knobs("replay")) > 5


def test_explain_of_something_else(cli: Any) -> None:
    code, _, err = cli("explain", "loss.entropy_kost")
    assert code == 2
    assert "no setting 'loss.entropy_kost' (did you mean 'loss.entropy_cost'?)" in err


@pytest.mark.parametrize("name", preset_names())
def test_presets_fit_the_schema(name: str) -> None:
    preset = plain_yaml.parse((PRESETS / f"{name}.yaml").read_text())
    assert list(jsonschema.Draft202012Validator(schema()).iter_errors(preset)) == []


def test_schema_refuses_what_pronk_refuses(cli: Any) -> None:
    made = json.loads(cli("show", "--schema")[1])
    jsonschema.Draft202012Validator.check_schema(made)
    jsonschema.validate({"env": {"wrappers": ["grayscale", {"resize": 84}], "tasks": ["A-v0"]}, "base": "pong"}, made)
    for wrong in ({"los": {}}, {"loss": {"name": 3}}, {"run": {"seed": -1}}, {"transport": {"name": "pigeon"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, made)


# ---- completion


def test_every_candidate_is_a_valid_override() -> None:
    for candidate, _ in completion.complete_override(""):
        if not candidate.startswith(("learners.rank", "loss.correction=", "loss.target", "env.task_observed=true")):
            load_config("catch", ["loss.name=appo", candidate])
    assert ("transport.name=local", next(completion.complete_override("transport.name=l"))[1]) in list(
        completion.complete_override("transport.n")
    )
    assert [key for key, _ in completion.complete_key("loss.entropy")] == ["loss.entropy_cost", "loss.entropy_schedule"]
    assert "cartpole" in dict(completion.complete_source("cart"))


def test_the_shell_completes_presets_keys_and_runs(tmp_path: Path) -> None:
    run = tmp_path / "runs/mine"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("env: {id: catch}\n")

    def completed(words: str, count: int) -> str:
        given = {"_PRONK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
        command = [sys.executable, "-c", "import sys; sys.argv = ['pronk']; import pronk.cli; pronk.cli.main()"]
        environment = {**os.environ, **given, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment).stdout

    assert "cartpole" in completed("pronk train cart", 2).split()
    assert "run.total_seconds=null" in completed("pronk train cartpole run.total_sec", 3).split()
    assert {"last", "mine"} <= set(completed("pronk eval ", 2).split())


# ---- help


def test_flags_are_not_shown_with_a_type(cli: Any) -> None:
    for name in get_command(app).commands:
        out = cli(name, "--help")[1]
        assert "<bool>" not in out, name
        assert "<list[str]>" not in out, name


def test_help_texts_are_sentences() -> None:
    for name, command in get_command(app).commands.items():
        for parameter in command.params:
            text = (getattr(parameter, "help", "") or "").removesuffix("]")
            if text:
                assert text[0].isupper(), (name, parameter.name, text)
                assert text.endswith((".", "NAME-DATE-TIME")), (name, parameter.name, text)


COMMAND = re.compile(r"^pronk .*", re.MULTILINE)


@pytest.mark.parametrize("file", ["README.md", "docs/environments.md", "docs/cluster.md", "docs/guide.md"])
def test_every_command_in_the_docs_is_one(file: str) -> None:
    """Commands, options and settings are checked; nothing is run."""
    text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", "")
    blocks = "\n".join(re.findall(r"^```(?:sh)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    lines = [*COMMAND.findall(blocks), *re.findall(r"\| `(pronk train [^`]*)` \|", text)]
    assert lines
    group = get_command(app)
    for line in lines:
        words = shlex.split(line.partition(" > ")[0].partition(" &")[0], comments=True)
        if words[1] in ("--version", "--help"):
            continue
        command = group.commands[words[1]]
        context = command.make_context(words[1], words[2:])
        overrides = context.params.get("overrides") or []
        if overrides and not context.params.get("resume"):
            load_config("CartPole-v1", [one for one in overrides if one.startswith(("run.", "loss.", "network."))])


def test_python_files_get_a_hint(cli: Any) -> None:
    Path("myenvs.py").write_text("import gymnasium\nclass Helper: pass\nclass Maze(gymnasium.Env): pass\n")
    for written in ("myenvs", "myenvs.py", "myenvs.py:Maze"):
        code, _, err = cli("train", written)
        assert code == 2
        assert err == (
            f"error: {written} is a Python file; name the module and the class or function in it: myenvs:Maze\n"
        )
    assert "such as other:MyEnv" in cli("train", "other.py")[2]


def test_the_file_of_xingtian_in_the_examples_converts(cli: Any) -> None:
    code, out, _ = cli("convert", str(ROOT / "examples/cartpole_impala_ms.yaml"))
    assert code == 0
    assert "CartPole-v" in out
