"""Makes the pictures of the dashboard from real runs in a headless Chromium: `python docs/make_dashboard_pictures.py`.

It trains CartPole three times with different settings, measures the machine, and takes the last picture while a fourth
training is under way. Chromium and its driver are needed: `make browser`.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from browser import browser, choose_size, choose_theme, missing, take_picture
from processes import Training, command_line, wait_until

from pronk.dashboard.server import open_folder

PICTURES = Path(__file__).parent / "pictures"
LOG = "run.log_every_seconds=0.2"
SETTINGS = {
    "cartpole-default": (),
    "cartpole-rate-3e-4": ("optimiser.learning_rate=3e-4",),
    "cartpole-no-correction": ("loss.correction=none", "run.seed=2"),
}
ENOUGH = 900_000  # steps of the live run, when its picture is taken


def make_pictures(folder: Path) -> None:
    """Into docs/pictures."""
    for name, changes in SETTINGS.items():
        done = command_line(
            "train", "cartpole", LOG, "run.total_steps=1e6", *changes, "--run-dir", folder / name, "--quiet"
        )
        assert done.code == 0, done.err
    assert command_line("bench", folder / "cartpole-default").code == 0
    live = (
        "cartpole",
        LOG,
        "run.stop_return=null",
        "run.total_steps=2e6",
        "run.seed=3",
        "--evaluate",
        "evaluation.every_seconds=2",
    )
    with open_folder(folder, 0) as server, browser("--force-device-scale-factor=1") as driver:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def show(page: str) -> None:
            driver.get(server.url + page)
            wait_until(lambda: driver.execute_script("return document.body.dataset.ready") == "yes", 60, page)

        choose_size(driver, 1240, 1200)
        choose_theme(driver, "dark")
        show("compare?" + "&".join(f"run={name}" for name in SETTINGS))
        take_picture(driver, PICTURES / "dashboard-dark.png")
        choose_theme(driver, "light")
        choose_size(driver, 1240, 1430)
        with Training(folder / "cartpole-live", *live):
            wait_until(lambda: (folder / "cartpole-live" / "config.yaml").exists(), 120, "the run to begin")
            show("run?run=cartpole-live")
            steps = "return Number(document.body.dataset.steps)"
            wait_until(lambda: driver.execute_script(steps) > ENOUGH, 600, f"{ENOUGH:,} steps")
            take_picture(driver, PICTURES / "dashboard.png")
        server.shutdown()


if __name__ == "__main__":
    if missing():
        sys.exit(missing())
    with tempfile.TemporaryDirectory() as place:
        make_pictures(Path(place) / "runs")
