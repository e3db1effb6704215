"""Test settings: import paths, and how pytest-xdist shares the tests between its workers."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pronk.processes.collecting import collect_seldom

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the networks here are tiny: more threads of torch are slower
# Some images forbid it; then each of the many processes here would compile Pronk again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
collect_seldom()

# Jobs in the background of a shell ignore Ctrl-C, and so would all that is started here: tests of Ctrl-C would fail.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What the account has trained with (pronk/runs/trust.py) is remembered while the tests run, not after.
CONFIG_HOME = tempfile.TemporaryDirectory(prefix="pronk-tests-")
os.environ["XDG_CONFIG_HOME"] = CONFIG_HOME.name

SUPPORT = str(Path(__file__).parent / "support")
if SUPPORT not in sys.path:  # actor processes get this path too, and import environments from there
    sys.path.insert(0, SUPPORT)

import forking  # noqa: E402 - it is in SUPPORT

forking.warm_up()

# Files with the longest tests, longest first. They start first, so that no worker is left alone with one at the end.
LONG = (
    "end_to_end/test_ray.py",
    "end_to_end/test_launch.py",
    "end_to_end/test_many_learners.py",
    "end_to_end",
    "evaluation/test_evaluator.py",
    "actors",
    "test_docs.py",
    "cli",
    "cluster",
    "exports",
    "dashboard",
)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: more workers than cores, because many tests wait for processes they started."""
    return (os.cpu_count() or 1) + 2


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run tests that share a module's fixture in the same worker."""
    from scheduling import SharedFixtureScheduling

    return SharedFixtureScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start long tests first."""
    items.sort(key=_order)


def _order(item: pytest.Item) -> int:
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    return next((place for place, prefix in enumerate(LONG) if path.startswith(prefix)), len(LONG))
