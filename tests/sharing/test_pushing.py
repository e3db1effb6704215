"""A shared policy: what is in its folder, and what a Hub receives of it."""

from __future__ import annotations

import http.server
import json
import runpy
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from safetensors import safe_open

import pronk
from pronk.config import load_config
from pronk.sharing.pushing import FILES, push
from pronk.sharing.zoo import front_matter_of, zoo
from pronk.starting import train
from pronk.types import Failure, UserError

SHORT = ["transport=local", "run.total_steps=1280", "network.hidden=[16]", "run.log_every_seconds=0.01"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("runs") / "secret-place" / "run"
    train(load_config("CartPole-v1", SHORT), run_dir=path)
    (path / "logs" / "actor-0.log").write_text("hf_secret_token")
    return path


def summary_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text())


def test_a_folder_holds_all_that_is_shared_and_nothing_else(run: Path, tmp_path: Path) -> None:
    done = push(run, f"{tmp_path}/cartpole", episodes=3)
    folder = tmp_path / "cartpole"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert [path for path in folder.iterdir() if b"secret" in path.read_bytes()] == []
    text = (folder / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    facts = yaml.safe_load(front)
    mean = json.loads((folder / "scores.json").read_text())["evaluation"]["mean"]
    assert mean == done.scores["evaluation"]["mean"]
    assert facts["library_name"] == "pronk"
    assert facts["model-index"][0]["results"][0]["metrics"][0]["value"].startswith(f"{mean:.1f}")
    assert f"| mean return | {mean:.1f}" in body
    assert f"{summary_of(run)['env_steps']:,} steps" in body
    assert "](curve.png)" in body
    assert (folder / "model_safetensors.py").read_text().strip() in body
    assert Image.open(folder / "curve.png").size[0] > 600
    assert load_config(folder / "config.yaml").network.hidden == [16]
    with safe_open(folder / "model.safetensors", "np") as weights:
        assert "_torso._layers.0.weight" in weights.keys()  # noqa: SIM118 - not a dict


def test_a_shared_folder_acts_where_it_is_and_is_renewed(run: Path, tmp_path: Path) -> None:
    for _ in range(2):
        push(run, f"{tmp_path}/a", episodes=0)
    assert "mean return |" not in (tmp_path / "a" / "README.md").read_text()
    (tmp_path / "a").rename(tmp_path / "b")
    act = runpy.run_path(str(tmp_path / "b" / "model_safetensors.py"))["act"]
    assert act(np.zeros(4, np.float32), first=True) in (0, 1)


def test_the_runs_own_evaluation_of_this_checkpoint_is_the_score(run: Path, tmp_path: Path) -> None:
    steps = summary_of(run)["env_steps"]
    line = {"env_steps": steps, "episodes": 7, "mean": 123.0, "std": 4.0, "min": 1.0, "max": 200.0, "mean_length": 9.0}
    lines = [{**line, "env_steps": 640, "mean": 1.0}, line]
    (run / "eval.jsonl").write_text("".join(json.dumps({**each, "deterministic": True}) + "\n" for each in lines) + "{")
    try:
        done = push(run, f"{tmp_path}/a")
    finally:
        (run / "eval.jsonl").unlink()
    assert done.scores["evaluation"]["mean"] == 123.0
    assert "123.0 +/- 4.0 over 7 episodes, most probable actions" in (tmp_path / "a" / "README.md").read_text()


def test_what_cannot_be_shared_is_said(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    (tmp_path / "file").write_text("")
    for repo, words in {
        "./mine": "contains files that `pronk push` did not write",
        "./file": "is a file; name a folder",
        "mine": r"'mine' is neither owner/name on the Hub nor a folder; write a folder as \./mine",
        "a/b/c": "neither owner/name",
    }.items():
        with pytest.raises(UserError, match=words):
            push(run, repo)
    with pytest.raises(UserError, match="no run directory"):
        push("nowhere", "./x")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"huggingface_hub: pip install 'pronk\[hub\]'"):
        push(run, "me/mine")


# ---- the Hub, as far as an upload speaks to it


class Hub(http.server.ThreadingHTTPServer):
    """Remembers what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.created: dict[str, Any] = {}
        self.private = True
        self.received: dict[str, bytes] = {}
        self.models: list[dict[str, Any]] = []
        self.asked = ""


class Answers(http.server.BaseHTTPRequestHandler):
    """The requests that huggingface_hub makes for a small upload."""

    server: Hub

    def log_message(self, *_: object) -> None: ...

    def answer(self, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path.startswith("/api/models?"):
            self.server.asked = self.path
            return self.answer(self.server.models)
        self.answer({"id": "me/mine", "private": self.server.private, "sha": "0" * 40, "siblings": []})

    def do_POST(self) -> None:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            self.answer({"url": "https://huggingface.co/me/mine"})
        elif "/preupload/" in self.path:
            files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            self.answer({"files": files})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.received[line["value"]["path"]] = line["value"]["content"].encode()
            self.answer(
                {"commitUrl": "https://huggingface.co/me/mine/commit/0", "commitOid": "0" * 40, "success": True}
            )
        else:
            self.answer({})


@pytest.fixture
def served(monkeypatch: Any) -> Iterator[Hub]:
    with Hub() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setenv("HF_TOKEN", "hf_secret_token")
        yield server
        server.shutdown()
        thread.join()


def made_private(served: Hub) -> bool:
    """As this version of the Hub's library asks for it."""
    return served.created.get("private", served.created.get("visibility") == "private")


def test_the_hub_receives_the_folder_and_it_is_private(run: Path, served: Hub) -> None:
    push(run, "me/mine", episodes=0)
    assert made_private(served)
    assert set(served.received) == set(FILES)
    served.received.clear()
    served.private = False
    with pytest.raises(UserError, match="me/mine is a public repository"):
        push(run, "me/mine", episodes=0)
    assert served.received == {}
    push(run, "me/mine", episodes=0, public=True)
    assert not made_private(served)
    assert set(served.received) == set(FILES)


def test_a_hub_that_is_not_there_is_said_in_one_line(run: Path, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "hf_secret_token")
    with pytest.raises(Failure, match="cannot push to me/mine: ") as failed:
        push(run, "me/mine", episodes=0)
    assert len(str(failed.value).splitlines()) == 1


# ---- the zoo


def test_a_zoo_lists_what_was_pushed_and_how_to_use_it(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="there is no folder zoo"):
        zoo()
    mean = push(run, "./zoo/cartpole/first", episodes=3).scores["evaluation"]["mean"]
    push(run, "./zoo/second", episodes=0)
    strangers = {
        "a": "# no card",
        "b": "---\nlibrary_name: pronk\n: [\n---\n",
        "c": "---\nlibrary_name: pronk\ntags: 3\n---\n",
    }
    for name, text in strangers.items():
        (tmp_path / "zoo" / name).mkdir()
        (tmp_path / "zoo" / name / "README.md").write_text(text)
        (tmp_path / "zoo" / name / "model.safetensors").write_bytes(b"")
    odd, first, second = zoo()
    assert (odd.name, odd.environment, odd.score) == ("c", "-", None)
    assert (first.name, first.environment, first.episodes) == ("cartpole/first", "CartPole-v1", 3)
    assert str(first.score).startswith(f"{mean:.1f} +/- ")
    assert (second.name, second.score, second.episodes) == ("second", None, None)
    policy = eval(first.use, {"pronk": pronk})
    assert policy.act(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(UserError, match="neither a folder nor an owner"):
        zoo("me/mine")


def test_a_zoo_on_the_hub_is_one_request(run: Path, tmp_path: Path, served: Hub) -> None:
    push(run, f"{tmp_path}/a", episodes=2)
    front = front_matter_of((tmp_path / "a" / "README.md").read_text())
    served.models = [{"id": "me/mine", "cardData": front}, {"id": "me/other", "cardData": {"library_name": "jax"}}]
    (entry,) = zoo("me")
    assert "author=me" in served.asked
    assert (entry.name, entry.environment, entry.episodes) == ("me/mine", "CartPole-v1", 2)
    assert entry.use == "hf download me/mine --local-dir ./zoo/mine"
