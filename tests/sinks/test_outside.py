"""Sinks of `run.sinks`: what they are told, and that nothing they do can hurt a training."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_sinks import Notebook, Stuck
from processes import read_metrics

from pronk.config import load_config
from pronk.sinks import outside
from pronk.starting import train
from pronk.types import UserError

SHORT = ["transport=local", "run.total_steps=640", "run.log_every_seconds=0.001"]


@pytest.fixture
def pages() -> Iterator[list[Any]]:
    Notebook.pages.clear()
    Stuck.freed.clear()
    yield Notebook.pages
    Stuck.freed.set()


def trained(path: Path, *overrides: str) -> list[str]:
    """What was said of it."""
    said: list[str] = []
    summary = train(load_config("catch", [*SHORT, *overrides]), run_dir=path, say=said.append)
    assert (summary["outcome"], summary["env_steps"]) == ("finished", 640)
    return said


def test_a_sink_of_ones_own_gets_every_line(tmp_path: Path, pages: list[Any]) -> None:
    assert trained(tmp_path / "run", "run.sinks=own_sinks:Notebook") == []
    facts, *lines, end = pages
    assert (facts.name, facts.path, facts.config["env"]["id"]) == ("run", tmp_path / "run", "catch")
    assert lines == read_metrics(tmp_path / "run")
    assert end == "closed"


@pytest.mark.parametrize("name", ["FailsToOpen", "FailsToWrite", "FailsToClose"])
def test_a_sink_that_fails_is_said_once_and_the_others_go_on(name: str, tmp_path: Path, pages: list[Any]) -> None:
    said = trained(tmp_path / "run", f"run.sinks=[own_sinks:{name}, own_sinks:Notebook]")
    assert said == [f"run.sinks: own_sinks:{name}: no route to host (the training is not affected)"]
    assert [page for page in pages if isinstance(page, dict)] == read_metrics(tmp_path / "run")


@pytest.mark.parametrize(
    ("room", "told"),
    [(1, "too slow; some lines are lost"), (100, "not done 0.3 s after the training; what is left is lost")],
)
def test_a_sink_that_hangs_is_left_behind(
    room: int, told: str, tmp_path: Path, pages: list[Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr(outside, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(outside, "MOST_LINES", room)
    said = trained(tmp_path / "run", "run.sinks=own_sinks:Stuck")
    assert said == [f"run.sinks: own_sinks:Stuck: {told} (the training is not affected)"]


def test_what_cannot_be_a_sink_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: Any) -> None:
    def refused(value: str) -> str:
        with pytest.raises(UserError) as error:
            trained(tmp_path / "run", f"run.sinks={value}")
        return str(error.value)

    assert "no sink 'wanbd' (did you mean 'wandb'?); there are wandb, mlflow, and your own" in refused("[wanbd]")
    assert "no module 'nowhere'" in refused("nowhere:Sink")
    assert "run.sinks" in refused("3")
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mlflow" else real(name))
    assert refused("mlflow") == "run.sinks: mlflow needs the package mlflow: pip install 'pronk[mlflow]'"
    assert not (tmp_path / "run").exists()


# ---- the real ones, in processes of their own: their packages leave threads and hooks behind


def spawned(path: Path, sink: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pronk", "train", "catch", *SHORT, f"run.sinks={sink}", "--run-dir", str(path)]
    environment = {**os.environ, "HOME": str(path.parent), **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment, cwd=path.parent)


def without_waiting(said: str) -> str:
    """A slow machine makes it say that it waits."""
    return "".join(line for line in said.splitlines(keepends=True) if "run.sinks: waiting for" not in line)


def silent_server() -> socket.socket:
    """Takes connections and never answers."""
    server = socket.create_server(("127.0.0.1", 0))
    server.listen()
    return server


needs_wandb = pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="wandb is not installed")
needs_mlflow = pytest.mark.skipif(not importlib.util.find_spec("mlflow"), reason="mlflow is not installed")
KEY = "0123456789" * 4


def wandb_records(log: Path) -> Iterator[bytes]:
    """Of a .wandb file: LevelDB's log format, blocks of 32 KiB, after seven bytes of its own."""
    content, at, record = log.read_bytes(), 7, b""
    assert content.startswith(b":W&B")
    while at + 7 <= len(content):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        record += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


@needs_wandb
@pytest.mark.timeout(300)
def test_wandb_offline_has_every_line(tmp_path: Path) -> None:
    done = spawned(tmp_path / "run", "wandb", WANDB_MODE="offline")
    assert (done.returncode, without_waiting(done.stderr)) == (0, "")
    [log] = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    identity = (tmp_path / "run" / "wandb.id").read_text().strip()
    assert log.name == f"run-{identity}.wandb"
    from wandb.proto.wandb_internal_pb2 import Record

    history: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    for data in wandb_records(log):
        record = Record()
        record.ParseFromString(data)
        items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        history += [items] if items else []
        config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
    lines = read_metrics(tmp_path / "run")
    assert [line["env_steps"] for line in history] == [line["env_steps"] for line in lines]
    assert [line.get("episode_return") for line in history] == [line["episode_return"] for line in lines]
    assert config["env"]["id"] == "catch"


@needs_wandb
@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize("service", ["absent", "silent"])
def test_a_training_does_not_wait_for_wandb(service: str, tmp_path: Path) -> None:
    with silent_server() as server:
        port = 9 if service == "absent" else server.getsockname()[1]
        done = spawned(tmp_path / "run", "wandb", WANDB_BASE_URL=f"http://127.0.0.1:{port}", WANDB_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert "Finished." in done.stdout
    assert done.stderr.count("run.sinks: wandb:") == 1
    assert "`wandb sync` sends it" in done.stderr
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert "Traceback" not in done.stderr
    assert len(read_metrics(tmp_path / "run")) > 1


@needs_mlflow
@pytest.mark.timeout(300)
def test_mlflow_has_every_line_also_after_a_resume(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    if not importlib.util.find_spec("sqlalchemy"):  # of mlflow-skinny
        store = f"file://{tmp_path}/store"
    where = {"MLFLOW_TRACKING_URI": store, "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_EXPERIMENT_NAME": "tests"}
    done = spawned(tmp_path / "run", "mlflow", **where)
    assert (done.returncode, without_waiting(done.stderr)) == (0, "")
    command = [sys.executable, "-m", "pronk", "train", str(tmp_path / "run"), "--resume", "run.total_steps=1280"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env={**os.environ, **where})
    assert (done.returncode, without_waiting(done.stderr)) == (0, "")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=store)
    [run] = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["env.id"] == "catch"
    history = sorted(client.get_metric_history(run.info.run_id, "episode_return"), key=lambda point: point.step)
    lines = [line for line in read_metrics(tmp_path / "run") if line["episode_return"] is not None]
    assert history[-1].step == 1280
    assert [point.step for point in history] == [line["env_steps"] for line in lines]
    assert [point.value for point in history] == [line["episode_return"] for line in lines]


@needs_mlflow
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_training_does_not_wait_for_mlflow(tmp_path: Path) -> None:
    with silent_server() as server:
        done = spawned(tmp_path / "run", "mlflow", MLFLOW_TRACKING_URI=f"http://127.0.0.1:{server.getsockname()[1]}")
    assert done.returncode == 0, done.stderr
    assert "Finished." in done.stdout
    assert done.stderr.count("run.sinks: mlflow:") == 1
    assert "Traceback" not in done.stderr
