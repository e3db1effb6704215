"""Columns that are drawn again into later batches, with their frames stored once each."""

from pronk.replay.buffer import Replay, describe_replay, replay_nbytes, replayed_columns

__all__ = ["Replay", "describe_replay", "replay_nbytes", "replayed_columns"]
