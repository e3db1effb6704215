import os
import subprocess
import sys
from pathlib import Path

import pytest

from pronk.config import machine


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="Linux tells how busy its cores are")
def test_a_core_that_computes_is_busy():
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert 0.5 < machine.busy_cores(0.5) <= os.cpu_count()
    finally:
        hog.kill()
        hog.wait()


def test_without_the_kernel_s_figures_it_is_the_load_average(monkeypatch):
    monkeypatch.setattr(machine, "core_times", lambda: (_ for _ in ()).throw(OSError()))
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 0.0, 0.0))
    assert machine.busy_cores(0.0) == 1.5
