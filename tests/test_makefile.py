"""Which Python the Makefile takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECENT = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
OLD = "#!/bin/sh\nexit 1\n"  # what the Makefile asks any Python is whether it is too old
SHIM = "#!/bin/sh\necho 'pyenv: command not found' >&2\nexit 127\n"  # pyenv has these for versions not chosen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout without .venv, and beside it `bin`: a PATH with nothing but what the Makefile calls."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for program in ("make", "sh"):
        found = shutil.which(program)
        if found is None:
            pytest.skip(f"no {program} here")
        (tmp_path / "bin" / program).symlink_to(os.path.realpath(found))
    return tmp_path


def make(folder: Path, *arguments: str, **pythons: str) -> subprocess.CompletedProcess[str]:
    for name, script in pythons.items():
        path = folder / "bin" / name.replace("_", ".")
        path.write_text(script)
        path.chmod(0o755)
    return subprocess.run(
        ["make", "install", *arguments],
        cwd=folder,
        env={"PATH": str(folder / "bin")},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3_11": RECENT, "python3_12": RECENT}, "python3.11"),
        ({"python3_12": RECENT}, "python3.12"),
        ({"python3_11": SHIM, "python3_14": RECENT, "python3": OLD}, "python3.14"),
        ({"python3": RECENT}, "python3"),
        ({"python3": OLD, "python": RECENT}, "python"),
    ],
)
def test_takes_the_first_python_that_is_recent(folder: Path, pythons: dict[str, str], chosen: str) -> None:
    assert f"\n{chosen} -m venv .venv\n" in make(folder, "-n", **pythons).stdout


@pytest.mark.parametrize("pythons", [{}, {"python3_11": SHIM, "python3": OLD}])
def test_says_what_is_needed_where_no_python_is_recent(folder: Path, pythons: dict[str, str]) -> None:
    done = make(folder, **pythons)
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed; found none as python3.11 python3.12" in done.stdout
    assert "make PYTHON=/path/to/python" in done.stdout


def test_a_python_given_by_hand_is_checked(folder: Path) -> None:
    done = make(folder, "PYTHON=python3", python3=OLD, python3_11=RECENT)
    assert done.returncode != 0
    assert "found none as python3\n" in done.stdout
