"""Hostile input to all that reads from files, the network or the command line: documented errors and nothing else.

The suite tries few inputs; `make fuzz` tries 100,000 for each reader (PRONK_FUZZ says how many).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import string
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from made_runs import make_run
from through_grpc import LAYOUT, honest

from pronk.config import load_config, plain_yaml, validate
from pronk.config.reference import knobs
from pronk.config.trees import assign
from pronk.config.xingtian import convert
from pronk.dashboard.server import FILES, PAGES, QUESTIONS, Server
from pronk.processes.messages import Message, decode
from pronk.runs import json_lines
from pronk.runs.checkpoint import FORMAT, PARTS, load_checkpoint, save_tensors
from pronk.transport.frames import HEADER, MAGIC, Frame, InvalidFrame, Kind, unpack, unpack_json
from pronk.transport.validation import LARGEST, InvalidUnroll, Magnitudes, validate_unroll
from pronk.types import UserError

INPUTS = int(os.environ.get("PRONK_FUZZ", "40"))
pytestmark = pytest.mark.timeout(max(300, INPUTS))
fuzz = settings(
    max_examples=INPUTS,
    deadline=2000 if INPUTS < 1000 else 20_000,  # in two hours, other work may take the machine for seconds
    derandomize=INPUTS < 1000,
    database=None,
    suppress_health_check=list(HealthCheck),
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
PUNCTUATION = st.text(alphabet="[]{}:,&*!|>%@`#-?\"' \n\t\\" + "aeioulnx01." + "\ud800\x00\x85", max_size=60)
PLAIN_TYPES = (type(None), bool, int, float, str, bytes, datetime.date, datetime.datetime, list, dict, set, tuple)
NEARLY_YAML = st.one_of(st.text(max_size=60), PUNCTUATION, PLAIN.map(lambda value: yaml.safe_dump(value)))

KEYS = [knob.path for knob in knobs()]
XINGTIAN = [
    *("env_num", "alg_para", "alg_para.alg_name", "alg_para.alg_config.BATCH_SIZE", "alg_para.alg_config.episode_len"),
    *("agent_para.agent_num", "agent_para.agent_config", "agent_para.agent_config.max_steps", "pbt_config", "use_pbt"),
    *("env_para.env_name", "env_para.env_info.dim", "env_para.env_info.vector_env_size", "benchmark.eval"),
    *("model_para.actor.model_name", "model_para.actor.state_mean", "model_para.actor.model_config.LR"),
    *("model_para.actor.model_config.NUM_LAYERS", "model_para.actor.model_config.lr_schedule"),
    *("pbt_config.population_size", "pbt_config.hyperparameters_mutations", "pbt_config.perturb_factor_delta"),
]
HONEST = bytearray(LAYOUT.nbytes)
honest(LAYOUT.view(HONEST), version=3)


@fuzz
@given(st.binary(max_size=100) | st.builds(lambda rest: MAGIC + rest, st.binary(min_size=HEADER.size, max_size=200)))
def test_frames(message: bytes) -> None:
    with contextlib.suppress(InvalidFrame):
        frame = unpack(message)
        assert isinstance(frame, Frame)
        assert isinstance(unpack_json(frame, *Kind), dict)


@fuzz
@given(st.binary(max_size=100) | PLAIN.map(lambda value: json_lines.as_json({"kind": "Hello", "rank": value}).encode()))
@example(b"[" * 100_000)
@example(b'{"kind": []}')
@example(b'{"kind": "Hello", "rank": 1, "token": null, "version": {}}')
def test_messages(line: bytes) -> None:
    with contextlib.suppress(ValueError, RecursionError):  # `Channel` closes the connection for both
        assert isinstance(decode(line), Message)


@fuzz
@given(NEARLY_YAML)
def test_yaml(text: str) -> None:
    with contextlib.suppress(yaml.YAMLError):
        value = plain_yaml.parse(text)
        assert_plain(value)


def assert_plain(value: Any) -> None:
    """Data and nothing else: no object of a class that the text names."""
    assert type(value) in PLAIN_TYPES, value
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    for one in inner if isinstance(value, dict | list | set | tuple) else ():
        assert_plain(one)


@fuzz
@given(st.data())
def test_overrides(data: Any) -> None:
    key = data.draw(st.sampled_from(KEYS) | st.text(alphabet=string.ascii_letters + "._[]=0", max_size=20))
    with contextlib.suppress(UserError):
        text = load_config("cartpole", [f"{key}={data.draw(NEARLY_YAML)}"]).to_yaml()
        assert validate(plain_yaml.parse(text)).to_yaml() == text, "what is accepted can be saved with a run"


@fuzz
@given(st.dictionaries(st.sampled_from(XINGTIAN), PLAIN, max_size=6), st.booleans())
def test_files_of_xingtian(changes: dict[str, Any], population: bool) -> None:
    tree: dict[str, Any] = {"env_para": {"env_info": {"name": "CartPole-v1"}}, "use_pbt": population}
    for path, value in changes.items():
        assign(tree, path, value)
    with contextlib.suppress(UserError):
        text = plain_yaml.dump(convert(tree).config)
        assert plain_yaml.dump(plain_yaml.parse(text)) == text, "what is converted can be written to a file"


@fuzz
@given(st.lists(st.tuples(st.integers(0, LAYOUT.nbytes - 1), st.binary(min_size=1, max_size=16)), max_size=8))
def test_unrolls(changes: list[tuple[int, bytes]]) -> None:
    block = bytearray(HONEST)
    for place, content in changes:
        block[place : place + len(content)] = content[: LAYOUT.nbytes - place]
    unroll = LAYOUT.view(block)
    with contextlib.suppress(InvalidUnroll):
        validate_unroll(unroll, LAYOUT.specs, newest=3)
        Magnitudes().check(unroll, 0)
        assert np.isfinite(unroll.reward).all(), "what passes can be learnt from"
        assert np.abs(unroll.reward).max() <= LARGEST


@fuzz
@given(st.binary(max_size=200) | PLAIN.map(lambda value: json_lines.as_json({"env_steps": value}).encode()))
@example(b"[" * 100_000)
@example(b'{"env_steps": ' + b"9" * 5000 + b"}")
def test_lines_of_metrics(line: bytes) -> None:
    found = json_lines.parse(line)
    assert found is None or isinstance(found, dict)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: Any) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "saved.pt"
    state: dict[str, Any] = {part: {} for part in PARTS} | {"learner": {"network": {"weight": torch.arange(8.0)}}}
    save_tensors(path, {"format": FORMAT, **state})
    return path.read_bytes()


@fuzz
@given(changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4), cut=st.integers(0))
def test_checkpoints(changes: list[tuple[int, int]], cut: int, saved: bytes, tmp_path_factory: Any) -> None:
    content = bytearray(saved[: cut % len(saved)] if cut % 4 == 1 else saved)
    for place, byte in changes:
        if content:
            content[place % len(content)] = byte
    path = Path(tmp_path_factory.getbasetemp()) / "fuzzed.pt"
    path.write_bytes(content)
    with contextlib.suppress(UserError):
        weights = load_checkpoint(path)["learner"]["network"]["weight"]
        assert torch.equal(weights, torch.arange(8.0)), "what loads is what was saved"


class WatchedServer(Server):
    """A dashboard that keeps the exceptions of its handlers instead of printing them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 0)
        self.errors: list[BaseException | None] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.errors.append(sys.exception())


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: Any) -> Iterator[WatchedServer]:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "one")
    with WatchedServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


ADDRESSES = st.builds(
    lambda path, key, value: f"{path}?{key}={value}".encode(errors="replace"),
    st.sampled_from([*QUESTIONS, *FILES, *PAGES, "/metrics", "/static/", "http://["]) | st.text(max_size=20),
    st.sampled_from(["run", "name", "metric", "columns", "since", "lines", "log"]) | st.text(max_size=8),
    st.text(max_size=20) | st.integers().map(str) | st.sampled_from(["one", "..", "../..", "%00", "%ff", "nan"]),
)
RANGES = st.text(max_size=20) | st.tuples(st.integers(), st.integers()).map(lambda ends: f"bytes={ends[0]}-{ends[1]}")


@fuzz
@given(method=st.sampled_from(["GET", "HEAD", "POST"]), address=ADDRESSES | st.binary(max_size=60), ranges=RANGES)
def test_addresses_of_the_dashboard(method: str, address: bytes, ranges: str, dashboard: WatchedServer) -> None:
    host = f"127.0.0.1:{dashboard.server_port}"
    head = f"HTTP/1.1\r\nHost: {host}\r\nRange: {ranges}\r\nConnection: close\r\n\r\n".encode(errors="replace")
    with socket.create_connection(("127.0.0.1", dashboard.server_port), 60) as connection:
        connection.sendall(method.encode() + b" " + address + b" " + head)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):  # a request that is refused before all of it is read
            while connection.recv(1 << 16):
                pass
    assert dashboard.errors == []
