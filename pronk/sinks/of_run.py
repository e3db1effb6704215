"""The sinks that every run has: its files, and the services of `run.sinks`."""

from __future__ import annotations

from collections.abc import Callable

from pronk.config import Config, ResolvedConfig
from pronk.metrics import Metrics
from pronk.metrics.diagnosis import Diagnosis
from pronk.runs.directory import RunDirectory
from pronk.sinks.base import Sink
from pronk.sinks.jsonl import JsonLines
from pronk.sinks.lag import LagHistogram
from pronk.sinks.notes import DiagnosisNotes
from pronk.sinks.outside import Facts, outside_sinks
from pronk.sinks.profile import LearnerProfile
from pronk.sinks.tensorboard import TensorBoard
from pronk.types import ActionSpec


def sinks_of_run(
    config: ResolvedConfig,
    recorded: Config,
    run: RunDirectory,
    metrics: Metrics,
    action: ActionSpec,
    say: Callable[[str], None],
) -> list[Sink]:
    """Return where the metrics of a run go, apart from the screen."""
    diagnosis = Diagnosis(config, action, resumed=metrics.env_steps > 0)
    facts = Facts(run.path.resolve().name, run.path, recorded.model_dump())
    sinks: list[Sink] = [
        JsonLines(run.metrics, run.evaluations),
        TensorBoard(run.tensorboard, metrics.env_steps),
        LagHistogram(run.lag, metrics.lags, metrics.replay_lags),
        DiagnosisNotes(run.notes, diagnosis, say),
        *outside_sinks(config.run.sinks, facts, say),
    ]
    if config.run.profile_seconds:
        sinks.append(LearnerProfile(run.profile, config.run.profile_seconds))
    return sinks
