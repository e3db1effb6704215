"""Texts that make YAML's own code raise: each is a user's mistake, told in one line."""

from __future__ import annotations

import pytest

from pronk.config import load_config
from pronk.types import UserError

NINES = "9" * 5_000
HOSTILE = [
    "2024-02-30",
    "{[1]: 2}",
    "!!int abc",
    "!!float x",
    "!!timestamp soon",
    "!!binary &",
    "{a: &x [*x]}",
    "[" * 2_000 + "]" * 2_000,
    NINES,
    "a" * 2_000_001,
    "{a: &a [1,1,1,1,1,1,1,1,1,1], b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a], c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], "
    "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c], e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_as_an_override(text: str) -> None:
    with pytest.raises(UserError, match="is not a YAML value") as caught:
        load_config("cartpole", [f"env.kwargs={text}"])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", HOSTILE)
def test_in_a_file(text: str, tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"env:\n  kwargs: {text}\n")
    with pytest.raises(UserError, match="is not valid YAML"):
        load_config(path)


@pytest.mark.parametrize("key", ["env.kwargs", "run.seed", "loss.correction", "actors"])
def test_a_long_value_is_cut_in_the_message(key: str) -> None:
    with pytest.raises(UserError) as caught:
        load_config("cartpole", [f"{key}={'a' * 100_000}"])
    assert len(str(caught.value)) < 500
