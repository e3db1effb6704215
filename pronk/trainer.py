"""A run that the caller drives step by step, and may inspect or change in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pronk.config import Config, override
from pronk.config.errors import nearest
from pronk.evaluation.trained_policy import TrainedPolicy
from pronk.learners import find_rendezvous
from pronk.sinks import Sink
from pronk.sinks.callbacks import Callbacks
from pronk.starting import config_of, opened, raise_if_interrupted
from pronk.training import Say, Training
from pronk.types import UserError

# Settings that the loop reads at every update. All others shape what exists already: actors, network, batches.
CHANGEABLE = (
    "optimiser.learning_rate",
    "optimiser.schedule",
    "loss.entropy_cost",
    "loss.barrier_cost",
    "loss.entropy_schedule",
    "run.total_steps",
    "run.total_seconds",
    "run.stop_return",
    "run.log_every_seconds",
    "checkpoint.every_seconds",
)


class Trainer:
    """A run that you drive yourself. A `with` block: leaving it ends the run, with a checkpoint.

        with pronk.Trainer("cartpole", ["run.stop_return=null"]) as trainer:
            while trainer.step(100):  # updates; False when the run is over
                print(trainer.metrics["env_steps"], trainer.metrics["episode_return"])
                if trainer.metrics["env_steps"] > 50_000:
                    trainer.set("loss.entropy_cost", 0.0)
            action = trainer.policy().act(observation)
        print(trainer.summary["outcome"])

    Between two calls the run is paused: actors wait once their slots are full, and the clock of the run stands still.
    `step` or `run` continues it. Ctrl-C during a call ends the run as `pronk.train` does.

    Args:
        source: what to train, as for `pronk.train`: a preset, a Gymnasium id, a configuration, a class, a function.
        overrides: settings on top.
        run_dir: where the run is written. By default a new one, runs/NAME-DATE-TIME.
        name: of the new run, by default the environment's id.
        resume: continue the run in `run_dir`.
        display: one more sink for the metrics.
        say: gets warnings.

    Raises:
        UserError: a mistake in the settings or the environment; or several learners, which cannot pause.
    """

    def __init__(
        self,
        source: Config | str | Path | Callable[..., Any],
        overrides: Sequence[str] = (),
        *,
        run_dir: str | Path | None = None,
        name: str | None = None,
        resume: bool = False,
        display: Sink | None = None,
        say: Say = print,
    ) -> None:
        config = config_of(source, overrides)
        rendezvous = find_rendezvous(config.learners)
        if rendezvous.count > 1 or config.cluster.name == "ray":
            raise UserError("a Trainer drives one learner in this process; use pronk.train for several, or for Ray")
        self._stack = contextlib.ExitStack()
        self._training: Training = self._stack.enter_context(
            opened(config, rendezvous, run_dir, name, resume, say, aloud=False)
        )
        self._callbacks = Callbacks(on_metrics=self._remember)
        self._updates = self._training.updates(display, self._callbacks)
        self._line: dict[str, Any] = {}
        self._left_at = time.perf_counter()
        self._over = False

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(self, updates: int = 1) -> bool:
        """Make so many updates; return whether the run goes on. After its end, nothing happens.

        Raises what `pronk.train` raises: `TrainingInterrupted` after Ctrl-C, or the cause of a failure.
        """
        self._training.metrics.leave_out(time.perf_counter() - self._left_at)
        try:
            with self._training.interrupts:
                for _ in range(0 if self._over else updates):
                    next(self._updates)
        except StopIteration:
            self._end()
            raise_if_interrupted(self.summary)
        except BaseException as error:
            self._over = True
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            self._left_at = time.perf_counter()
        return not self._over

    def run(self) -> dict[str, Any]:
        """Continue to the end; return the summary, as `pronk.train` does."""
        while self.step(1000):
            pass
        return self.summary

    def stop(self) -> dict[str, Any]:
        """End the run with a checkpoint and the outcome `stopped`, unless it is over; return the summary."""
        if not self._over:
            self._callbacks.stop()
            self.run()
        return self.summary

    def set(self, key: str, value: Any) -> None:
        """Change a setting from the next update on, such as `set("optimiser.learning_rate", 1e-4)`.

        Raises UserError for a value that is wrong, or a setting that cannot change while the run is on.
        """
        if key not in CHANGEABLE:
            raise UserError(
                f"{key} cannot change while the run is on{nearest(key, CHANGEABLE)}; these can: {', '.join(CHANGEABLE)}"
            )
        checked = override(Config(), [f"{key}={'null' if value is None else value}"]).at(key)
        if checked == "auto":
            raise UserError(f"{key}: auto is decided when a run starts; give a value")
        self._training.change({key: checked})

    def policy(self, *, deterministic: bool = False, seed: int = 1, task: str | None = None) -> TrainedPolicy:
        """Return a copy of the policy as it is now; training on does not change it."""
        config, weights = self._training.config, self._training.learner.state()["network"]
        return TrainedPolicy(config, {"learner": {"network": weights}}, deterministic, seed, task)

    @property
    def metrics(self) -> dict[str, Any]:
        """The last line of metrics, with steps, updates, episodes and returns as they are now."""
        return {**self._line, **self._training.metrics.counters()}

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._training.path

    @property
    def summary(self) -> dict[str, Any]:
        """What summary.json holds, once the run is over; before that, {}."""
        return self._training.summary

    def _remember(self, line: dict[str, Any]) -> None:
        self._line = line

    def _end(self) -> None:
        self._over = True
        self._stack.close()
