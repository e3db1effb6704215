"""How long the dashboard's pages take to open in a browser: `python benchmarks/dashboard_opens.py`.

Fifty finished runs in one table; the page of a run whose metrics have ten million lines; the page of a live training.
Each is opened by a fresh server that has read nothing yet. Measured by the browser, from the request to the page with
its curves drawn. The long file takes 3.8 GB in the temporary folder (TMPDIR) and is removed at the end. Exit code 1 if
anything took a second or more. `--lines` makes the long one shorter.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from browser import browser, choose_size, missing
from made_runs import add_the_rest, make_long_metrics, make_run
from processes import SIZES, Training, wait_until

from pronk.dashboard import runs
from pronk.dashboard.server import open_folder
from pronk.runs import reading

TIMES = 5


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """By a server that knows nothing yet."""
    reading.read_config.cache_clear()
    runs.returns.cache_clear()
    with open_folder(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


def opening_seconds(driver: Any, folder: Path, page: str) -> list[float]:
    """Of several first openings."""
    found = []
    for _ in range(TIMES):
        with served(folder) as url:
            driver.get(url + page)
            wait_until(lambda: driver.execute_script("return document.body.dataset.ready") == "yes", 60, page)
            found.append(driver.execute_script("return performance.getEntriesByName('ready')[0].startTime") / 1000)
            driver.get("about:blank")
    return found


def main(lines: int) -> int:
    reason = missing()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as place, browser() as driver:
        choose_size(driver, 1280, 900)
        driver.get("about:blank")
        results = {}
        for number in range(50):
            add_the_rest(
                make_run(Path(place) / "fifty" / f"run-{number:02d}", 1000, "finished", (f"run.seed={number}",))
            )
        results["fifty finished runs"] = opening_seconds(driver, Path(place) / "fifty", "")
        long = make_run(Path(place) / "long" / "run", 10)
        began = time.perf_counter()
        make_long_metrics(long / "metrics.jsonl", lines)
        size = (long / "metrics.jsonl").stat().st_size / 1e9
        os.sync()  # the disk is not to be busy with the writing of it any more
        print(f"wrote {lines:,} lines, {size:.2f} GB, in {time.perf_counter() - began:.0f} s", flush=True)
        results[f"a run of {lines:,} lines of metrics"] = opening_seconds(driver, long.parent, "run?run=run")
        results["the table with that run in it"] = opening_seconds(driver, long.parent, "")
        (long / "metrics.jsonl").unlink()
        live = Path(place) / "live" / "run"
        live.parent.mkdir()
        with Training(live, "catch", *SIZES, "run.total_steps=1e9", "run.stop_return=null") as training:
            training.wait_until(training.metrics, "the first line", 200)
            results["a live run"] = opening_seconds(driver, live.parent, "run?run=run")
    for what, seconds in results.items():
        print(f"{what:45} median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s of {TIMES}")
    return int(any(statistics.median(seconds) >= 1.0 for seconds in results.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    sys.exit(main(parser.parse_args().lines))
