"""Hostile input to all that reads from files, the network or the command line: documented errors and nothing else.

The suite tries few inputs; `make fuzz` tries 100,000 for each reader (PRONK_FUZZ says how many).
"""

from __future__ import annotations

import contextlib
import io
import os
import string
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pronk.config import load_config, plain_yaml
from pronk.config.reference import knobs
from pronk.processes.messages import Message, decode
from pronk.runs import json_lines
from pronk.runs.checkpoint import FORMAT, PARTS, load_checkpoint
from pronk.transport.frames import HEADER, MAGIC, Frame, InvalidFrame, Kind, unpack, unpack_json
from pronk.types import UserError

INPUTS = int(os.environ.get("PRONK_FUZZ", "40"))
pytestmark = pytest.mark.timeout(max(300, INPUTS))
fuzz = settings(
    max_examples=INPUTS,
    deadline=2000,
    derandomize=INPUTS < 1000,
    database=None,
    suppress_health_check=list(HealthCheck),
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
PUNCTUATION = st.text(alphabet="[]{}:,&*!|>%@`#-?\"' \n\t\\" + "aeioulnx01." + "\ud800\x00\x85", max_size=60)
NEARLY_YAML = st.one_of(st.text(max_size=60), PUNCTUATION, PLAIN.map(lambda value: yaml.safe_dump(value)))


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
        plain_yaml.parse(text)


@fuzz
@given(st.data())
def test_overrides(data: Any) -> None:
    key = data.draw(st.sampled_from(KEYS) | st.text(alphabet=string.ascii_letters + "._[]=0", max_size=20))
    with contextlib.suppress(UserError):
        load_config("cartpole", [f"{key}={data.draw(NEARLY_YAML)}"])


KEYS = [knob.path for knob in knobs()]


@fuzz
@given(st.binary(max_size=200) | PLAIN.map(lambda value: json_lines.as_json({"env_steps": value}).encode()))
@example(b"[" * 100_000)
@example(b'{"env_steps": ' + b"9" * 5000 + b"}")
def test_lines_of_metrics(line: bytes) -> None:
    found = json_lines.parse(line)
    assert found is None or isinstance(found, dict)


@pytest.fixture(scope="module")
def saved() -> bytes:
    file = io.BytesIO()
    state: dict[str, Any] = {part: {} for part in PARTS} | {"learner": {"network": {"weight": torch.arange(8.0)}}}
    torch.save({"format": FORMAT, **state}, file)
    return file.getvalue()


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
