"""`run.profile_seconds`: tables and traces of a real learner and a real actor."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path

import pytest
from processes import SIZES, Training

SECONDS = 180


@pytest.mark.timeout(2 * SECONDS)
def test_a_profile_names_every_part_of_learner_and_actor(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ("run.profile_seconds=1", "run.stop_return=null", "run.total_steps=1e12", "run.log_every_seconds=0.1")
    with Training(run, "catch", *SIZES, *settings, "actors.count=1") as training:
        files = [run / "profile" / f"{name}.{kind}" for name in ("learner", "actor-000") for kind in ("txt", "json.gz")]
        training.wait_until(lambda: all(map(Path.exists, files)), "the profile", SECONDS)
        training.send(signal.SIGINT)
        assert training.wait(SECONDS) == 130
        assert "Where the time of learner went" in training.out
        training.assert_nothing_left()
    expected = {
        "learner": ("forward", "backward", "optimiser", "publish", "batching", "metrics", "waiting", "other"),
        "actor-000": ("environment", "inference", "filling the unroll", "waiting for a slot", "other"),
    }
    for name, parts in expected.items():
        rows = [line.split(maxsplit=4) for line in (run / f"profile/{name}.txt").read_text().splitlines()[1:-1]]
        shares = {row[-1].partition(":")[0]: float(row[0].rstrip("%")) for row in rows}
        assert set(parts) <= set(shares), name
        assert sum(shares.values()) == pytest.approx(100, abs=1)
        assert min(shares.values()) >= 0
        with gzip.open(run / f"profile/{name}.json.gz") as file:
            assert set(parts[:2]) <= {event.get("name") for event in json.load(file)["traceEvents"]}
