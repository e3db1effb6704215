"""The notebooks of examples/: no output is saved, they run from top to bottom; and the stop button."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import assert_saved, descendants_of, read_metrics, wait_until

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
KERNEL = {"display_name": "Pronk", "language": "python"}


def test_no_output_is_saved() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), path


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a kernel that runs this Python."""
    for package in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(package)
    folder = tmp_path / "kernels/pronk"
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": command, **KERNEL}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    return folder.name


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, kernel: str) -> None:
    import nbclient
    import nbformat

    notebook: Any = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name=kernel, resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("aria-label='return over steps'" in str(output.get("data")) for output in shown)  # the live picture
    assert sum(output["output_type"] == "stream" for output in shown) < 10  # and no flood of lines


CELL = """
import os, pronk

open("pid", "w").write(str(os.getpid()))
endless = ["run.total_steps=1e9", "run.stop_return=null", "run.log_every_seconds=0.2"]
pronk.train("catch", endless, run_dir="run")
"""


@pytest.mark.slow
def test_the_stop_button_leaves_a_checkpoint_and_no_process(tmp_path: Path, kernel: str) -> None:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=120, kernel_name=kernel, cwd=str(tmp_path))
    try:
        client.execute(CELL)
        wait_until(lambda: len(read_metrics(tmp_path / "run")) > 2, 200, "some metrics")
        pid = int((tmp_path / "pid").read_text())
        assert descendants_of(pid), "no actor process"
        manager.interrupt_kernel()
        answer = client.get_shell_msg(timeout=100)["content"]
        assert answer["ename"] == "TrainingInterrupted"
        assert_saved(tmp_path / "run", "interrupted")
        wait_until(lambda: not descendants_of(pid), 60, "the end of the actors")
        client.execute_interactive("summary = 1", timeout=60)  # the kernel lives on
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
