"""Signals that ask for the end: two at once are one request, a later one ends the process at once."""

from __future__ import annotations

import os
import signal

import pytest

from pronk.processes import interrupts


def test_a_signal_that_timeout_sends_twice_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(interrupts, "AT_ONCE_SECONDS", 100.0)
    with interrupts.Interrupts() as noted:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert noted.requested
        assert ended == []
        monkeypatch.setattr(interrupts, "AT_ONCE_SECONDS", 0.0)
        signal.raise_signal(signal.SIGTERM)
        assert ended == [interrupts.INTERRUPTED]
