"""A cloned `pronk` is what a fresh one is: its output, exit code, directory, environment, session, signals, parent."""

import os
import signal
from pathlib import Path

import pytest
from forking import AVAILABLE
from processes import SUPPORT, start_pronk

import pronk

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="programs are cloned on Linux only")
ENVIRONMENT = """
import os
import sys

import gymnasium

print(os.getcwd(), os.environ.get("COLOUR"), os.environ["PYTHONPATH"], sys.path[0], sep="\\n", file=sys.stderr)
raise RuntimeError("enough")
"""


def started(folder, *arguments, **more):
    with open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        return start_pronk(*arguments, stdout=out, stderr=err, cwd=folder, **more)


@pytest.mark.parametrize("fresh", [False, True])
def test_its_output_and_exit_code(fresh, tmp_path):
    assert started(tmp_path, "--version", fresh=fresh).wait() == 0
    assert (tmp_path / "out").read_text() == f"pronk {pronk.__version__}\n"
    assert started(tmp_path, "show", "nothing", fresh=fresh).wait() == 2
    assert (tmp_path / "err").read_text().startswith("error: ")


def test_its_directory_and_environment(tmp_path):
    (tmp_path / "mine.py").write_text(ENVIRONMENT)
    assert started(tmp_path, "train", "mine:Env", "transport=local", COLOUR="red").wait() == 1
    told = (tmp_path / "err").read_text().splitlines()
    assert told[:2] == [str(tmp_path), "red"]
    assert told[2].split(":")[0] == str(SUPPORT)
    assert told[3] == str(tmp_path)


def test_its_session_and_signals(tmp_path):
    process = started(tmp_path, "dashboard", str(tmp_path), "--port", "0")
    assert os.getsid(process.pid) == process.pid
    parent = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()[1]
    assert int(parent) == os.getpid()
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL
