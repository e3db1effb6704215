"""The wheel, and the files beside the package that other tools read."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import pronk

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that nothing is left in the repository."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "pronk", source / "pronk", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", source, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = source.glob("*.whl")
    return zipfile.ZipFile(built)


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pronk").rglob("*") if path.is_file()}
    assert inside == {name for name in here if "__pycache__" not in name}


def test_wheel_names_its_version_command_and_licence(wheel: zipfile.ZipFile) -> None:
    folder = f"pronk-{pronk.__version__}.dist-info"
    metadata = email.message_from_bytes(wheel.read(f"{folder}/METADATA"))
    assert metadata["Version"] == pronk.__version__
    assert b"pronk = pronk.__main__:main" in wheel.read(f"{folder}/entry_points.txt")
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()


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
    assert {"lint", "test", "dist"} == set(used) <= targets
    declared = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", line)}
    assert set(jobs["test"]["strategy"]["matrix"]["python"]) == declared
