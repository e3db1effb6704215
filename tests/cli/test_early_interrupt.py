"""Ctrl-C before Pronk has set up what it does then."""

import subprocess
import sys

import pytest

PROGRAM = """
import runpy, sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
runpy.run_module("pronk", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["pronk.processes", "pronk.processes.early_interrupt", "pronk.cli", "typer"])
def test_an_import_that_is_interrupted_ends_without_a_traceback(module):
    done = subprocess.run([sys.executable, "-c", PROGRAM, module], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")
