"""Makes docs/pictures/notebook.png: a training in JupyterLab, in a headless Chromium.

    pip install jupyterlab
    python docs/make_notebook_picture.py

It opens a copy of examples/first_training.ipynb, runs its first cell and takes the picture once the curve has some
points. Chromium and its driver are needed: `make browser`.
"""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from browser import browser, choose_size, missing, take_picture
from processes import wait_until

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/pictures/notebook.png"
NOTEBOOK = "first_training.ipynb"
CODE_CELL = ".jp-CodeCell .cm-content"
READY = f"""return Boolean(document.querySelector('{CODE_CELL}') &&
  document.querySelector('.jp-Notebook-ExecutionIndicator[data-status=idle]'))"""
HIDE_QUESTIONS = "document.querySelectorAll('.Toastify').forEach((one) => one.remove())"
POINTS = "return document.querySelector('polyline')?.getAttribute('points').split(' ').length ?? 0"
ENOUGH = 6  # points of the curve


def answers(url: str) -> bool:
    """Whether the server is up."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def picture_of(driver: Any, url: str) -> None:
    """Run the first code cell, and take the picture during its training."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    choose_size(driver, 1180, 620)
    driver.get(url)
    wait_until(lambda: driver.execute_script(READY), 120, "the notebook and its kernel")
    driver.execute_script(f"document.querySelector('{CODE_CELL}').focus()")
    ActionChains(driver).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    wait_until(lambda: driver.execute_script(POINTS) >= ENOUGH, 200, f"{ENOUGH} points of the curve")
    driver.execute_script(HIDE_QUESTIONS)  # whether to get news, and the like
    take_picture(driver, PICTURE)


def main() -> None:
    """Start JupyterLab on this machine, and end it again."""
    if reason := missing():
        sys.exit(reason)
    if importlib.util.find_spec("jupyterlab") is None:
        sys.exit("the package jupyterlab is needed: pip install jupyterlab")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        shutil.copy(ROOT / "examples" / NOTEBOOK, folder)
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
        command += [f"--IdentityProvider.token={token}", "--allow-root", f"--ServerApp.root_dir={folder}"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(f"{address}/api"), 120, "JupyterLab")
            with browser("--force-device-scale-factor=1") as driver:
                picture_of(driver, f"{address}/doc/tree/{NOTEBOOK}?token={token}")
        finally:
            server.kill()  # it may take minutes to end by itself; its kernels notice, and end
            server.wait()


if __name__ == "__main__":
    main()
