"""The wheel, also in a clean environment outside the repository; and the files that other tools read."""

from __future__ import annotations

import email
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from oldest_versions import oldest
from packaging.requirements import Requirement

import pronk

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS_OF_COMMANDS = {"matplotlib", "ale-py", "minari", "safetensors", "onnx", "av", "optuna", "huggingface-hub", "ray"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the repository."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "pronk", source / "pronk", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", source, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = source.glob("*.whl")
    return built


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pronk").rglob("*") if path.is_file()}
    assert inside == {name for name in here if "__pycache__" not in name}


def test_wheel_names_its_version_command_and_licence(wheel: Path) -> None:
    folder, files = f"pronk-{pronk.__version__}.dist-info", zipfile.ZipFile(wheel)
    metadata = email.message_from_bytes(files.read(f"{folder}/METADATA"))
    assert metadata["Version"] == pronk.__version__
    assert b"pronk = pronk.__main__:main" in files.read(f"{folder}/entry_points.txt")
    assert f"{folder}/licenses/LICENSE" in files.namelist()


def test_changelog_and_citation_have_the_version() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert newest
    assert newest[1] == citation["version"] == pronk.__version__


@pytest.mark.parametrize(
    ("schema", "file"),
    [("vendor.github-workflows", ".github/workflows/ci.yml"), ("vendor.citation-file-format", "CITATION.cff")],
)
def test_schema(schema: str, file: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, ROOT / file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflow_runs_targets_of_the_makefile_on_every_supported_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = re.findall(r"run: make ([a-z-]+)", (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert {"audit", "lint", "test", "dist"} == set(used) <= targets
    declared = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", line)}
    assert set(jobs["test"]["strategy"]["matrix"]["python"]) == declared


def test_the_oldest_versions_are_the_lower_bounds_and_torch_stays() -> None:
    fixed = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    found = oldest((ROOT / "pyproject.toml").read_text(encoding="utf-8"), fixed)
    assert [line for line in found if line.startswith("torch")] == [
        line for line in fixed.splitlines() if line[0] != "#"
    ]
    required = {Requirement(line).name: Requirement(line).specifier for line in PROJECT["dependencies"]}
    chosen = dict(line.split("==") for line in found)
    assert required.keys() <= chosen.keys()
    assert all(specifier.contains(chosen[name]) for name, specifier in required.items())
    assert {"optuna", "onnx", "ale-py"} <= chosen.keys()  # of the extras in `all`


def test_the_lock_of_ci_has_a_hash_for_every_tested_version_but_torch() -> None:
    def pinned(name: str) -> set[str]:
        return set(re.findall(r"^[\w.-]+==[^\s\\]+", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE))

    def plain(pins: set[str]) -> set[str]:
        return {re.sub(r"[-_.]+", "-", pin.partition("==")[0]).lower() + pin.partition("==")[2] for pin in pins}

    tested = {pin for pin in pinned("constraints-tested.txt") if not pin.startswith("torch==")}
    lock = (ROOT / "requirements-ci.txt").read_text(encoding="utf-8")
    assert plain(pinned("requirements-ci.txt")) == plain(tested)
    for entry in re.split(r"\n(?=\S)", lock):
        assert entry.startswith("#") or re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


# ---- installed: what `pip install pronk` gives, and nothing else; without a network


def collect(distribution: importlib.metadata.Distribution, found: dict[str, importlib.metadata.Distribution]) -> None:
    """Collect what a distribution requires, and what that requires, without extras."""
    for text in distribution.requires or []:
        need = Requirement(text)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        if need.name.lower() not in found:
            found[need.name.lower()] = importlib.metadata.distribution(need.name)
            collect(found[need.name.lower()], found)


def link(distribution: importlib.metadata.Distribution, target: Path) -> None:
    """Make an installed distribution part of another environment, without a copy."""
    tops = {Path(str(file)).parts[0] for file in distribution.files or [] if not str(file).startswith("..")}
    for top in tops - {"__pycache__"}:
        source, place = Path(str(distribution.locate_file(top))), target / top
        if not place.exists() and source.exists():
            place.symlink_to(source)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment as `pip install pronk` makes it, from what is installed here."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True, timeout=60, env=without_paths())
    (packages,) = folder.glob("lib/*/site-packages")
    (installed,) = importlib.metadata.distributions(name="pronk", path=[str(packages)])
    found: dict[str, importlib.metadata.Distribution] = {}
    collect(installed, found)
    assert set(found).isdisjoint(EXTRAS_OF_COMMANDS), "a package that only some commands need"
    for distribution in found.values():
        link(distribution, packages)
    return folder


def without_paths() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(environment: Path, folder: Path, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    command = [str(environment / "bin" / words[0]), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=folder, env=without_paths())


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("train pong", "atari"),
        pytest.param("train ALE/Pong-v5", "atari", marks=pytest.mark.slow),
        pytest.param("train LunarLander-v3", "box2d", marks=pytest.mark.slow),
        pytest.param("push last ./shared", "hub", marks=pytest.mark.slow),
        pytest.param("train cartpole run.sinks=wandb", "wandb", marks=pytest.mark.slow),
        pytest.param("train cartpole run.video=true", "toys", marks=pytest.mark.slow),
    ],
)
def test_a_missing_extra_is_named_before_work_starts(environment: Path, tmp_path: Path, line: str, extra: str) -> None:
    done = run(environment, tmp_path, "pronk", *line.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert re.fullmatch(rf"error: .* pip install 'pronk\[{extra}\]'\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_sweep_without_matplotlib_says_so_first(environment: Path, tmp_path: Path) -> None:
    settings = "{transport: local, run: {total_steps: 2000}, base: catch, sweep: {seeds: 1}}"
    (tmp_path / "sweep.yaml").write_text(settings)
    done = run(environment, tmp_path, "pronk", "sweep", "sweep.yaml", timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("there will be no plot.png")
    assert "pip install 'pronk[plot]'" in done.stderr


@pytest.mark.slow
def test_the_first_commands_and_the_three_lines_of_the_readme(environment: Path, tmp_path: Path) -> None:
    for line in ("train cartpole", "eval last", "runs", "show cartpole", "explain loss.entropy_cost", "presets"):
        done = run(environment, tmp_path, "pronk", *line.split(), timeout=200)
        assert done.returncode == 0, f"pronk {line}: {done.stderr}"
    (recorded,) = (tmp_path / "runs").iterdir()
    assert list((recorded / "tensorboard").iterdir())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert lines
    program = f"observation = [0.0, 0.0, 0.0, 0.0]\n{lines[1]}\nprint(int(action) in (0, 1), pronk.__file__)"
    done = run(environment, tmp_path, "python", "-c", program, timeout=200)
    assert done.stdout.splitlines()[-1].startswith(f"True {environment}"), done.stdout + done.stderr
    drawn = run(environment, tmp_path, "pronk", "plot", "last")
    assert drawn.returncode == 2
    assert "pip install 'pronk[plot]'" in drawn.stderr
