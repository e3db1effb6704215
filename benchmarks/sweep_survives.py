"""A sweep of 20 short runs, one of them broken, killed in the middle: `python benchmarks/sweep_survives.py [--ray]`.

The members are Catch with 20 learning rates; one has a board without rows and cannot start. When five members have
finished, the sweep is killed (SIGKILL). Then it is resumed until its end. Prints what was complete before the kill,
what was trained again after it, and how all members ended. With `--ray`, the members run on a Ray that is started here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

PRONK = [sys.executable, "-m", "pronk"]
MEMBERS, BROKEN, KILLED_AFTER = 20, 3, 5
LONGEST = 1200.0  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", action="store_true", help="run the members on a Ray that is started here")
    parser.add_argument("--steps", type=int, default=50_000, help="of each member")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, path = Path(folder, "twenty.yaml"), Path(folder, "sweep")
        file.write_text(json.dumps(tree(given)))  # JSON is YAML
        command = [*PRONK, "sweep", str(file), "--quiet", "--run-dir", str(path)]
        sweep = subprocess.Popen(command)
        wait_for_members(sweep, path)
        sweep.kill()
        sweep.wait()
        before = finished(path)
        print(f"killed: {len(before)} members were complete, {MEMBERS - len(before)} were not")
        code = subprocess.run([*command, "--resume"], timeout=LONGEST).returncode
        members = json.loads((path / "sweep.json").read_text())["members"]
        same = sum(finished(path).get(name) == stamp for name, stamp in before.items())
    print(f"resumed: {same} of these {len(before)} were left as they were; exit code {code}")
    print(f"ended: {dict(Counter(member['state'] for member in members))}")
    for member in members:
        if member["state"] == "failed":
            print(f"failed: {member['name']}: {str(member['cause']).splitlines()[0]}")


def tree(given: argparse.Namespace) -> dict[str, Any]:
    """Return the sweep file."""
    entries: list[dict[str, Any]] = [{"optimiser.learning_rate": 1e-4 * (1 + number)} for number in range(MEMBERS)]
    entries[BROKEN]["env.kwargs"] = {"rows": 1}
    run = {"total_steps": given.steps, "stop_return": None}
    place = {"cluster": "ray"} if given.ray else {}
    return {"base": "catch", "transport": "local", "run": run, **place, "sweep": {"list": entries, "at_a_time": 2}}


def wait_for_members(sweep: subprocess.Popen[bytes], path: Path) -> None:
    began = time.monotonic()
    while len(finished(path)) < KILLED_AFTER:
        if sweep.poll() is not None or time.monotonic() - began > LONGEST:
            raise SystemExit(f"the sweep ended too early or takes too long: exit code {sweep.returncode}")
        time.sleep(0.2)


def finished(path: Path) -> dict[str, int]:
    """Return the members that are complete, with the time when their summaries were written."""
    return {file.parent.name: file.stat().st_mtime_ns for file in path.glob("*/summary.json")}


if __name__ == "__main__":
    main()
