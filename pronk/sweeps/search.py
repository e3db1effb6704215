"""A search with Optuna: proposes the settings of the next trial from the results so far.

The study is a journal in the sweep's directory (search.journal), written at every step, so a killed sweep goes on with
the same trials. Optuna is imported only here.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

from pronk.config.named import import_extra
from pronk.sweeps.expand import Member, Options, Settings, Sweep
from pronk.types import UserError

SAMPLERS = {"tpe": "TPESampler", "random": "RandomSampler", "qmc": "QMCSampler", "cmaes": "CmaEsSampler"}
SAMPLERS["gp"] = "GPSampler"
PRUNERS = {"none": "NopPruner", "median": "MedianPruner", "halving": "SuccessiveHalvingPruner"}
PRUNERS["hyperband"] = "HyperbandPruner"
REPORTS = 20  # intermediate values of a trial; pruners compare trials at the same one
RETRIES = "retries"  # attribute of a trial that repeats a failed one: the number of that one


def import_optuna() -> Any:
    """Import Optuna, or raise `UserError` with the command that installs it."""
    optuna = import_extra("optuna", "sweep.search", "sweep")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Search:
    """The trials of a sweep; see `Proposals`."""

    def __init__(self, sweep: Sweep, folder: Path, retry: bool = False) -> None:
        """Open the study in a sweep's directory, or make a new one. With `retry`, failed trials are tried again."""
        optuna = import_optuna()
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self._optuna, self._sweep = optuna, sweep
        storage = JournalStorage(JournalFileBackend(str(folder / "search.journal")))
        self._study = optuna.create_study(
            storage=storage,
            study_name="sweep",
            direction="maximize",
            load_if_exists=True,
            pruner=getattr(optuna.pruners, PRUNERS[sweep.options.pruner])(),
        )
        # Not the same seed after a resume: it would propose again what has been tried.
        self._study.sampler = make_sampler(optuna, sweep.options, sweep.seeds[0] + len(self._study.trials))
        self._states = optuna.trial.TrialState
        self._reported: dict[int, int] = {}
        if retry:
            self._enqueue_failed()

    def known(self) -> list[Member]:
        """Return the members of all trials of an earlier session, without failed ones that were tried again."""
        trials = self._study.trials
        repeated = {trial.user_attrs.get(RETRIES) for trial in trials}
        return [
            member
            for trial in trials
            if trial.state != self._states.WAITING and trial.number not in repeated
            for member in self._sweep.of_trial(trial.number, self._settings_of(trial))
        ]

    def propose(self) -> list[Member]:
        """Return the members of the next trial; empty: all trials are made."""
        states = [trial.state for trial in self._study.trials]
        waiting = states.count(self._states.WAITING)
        failed = states.count(self._states.FAIL)
        if not waiting and len(states) - min(failed, self._retried()) >= (self._sweep.options.trials or 0):
            return []
        trial = self._study.ask()
        settings = {key: suggest(trial, key, given) for key, given in self._sweep.options.search.items()}
        try:
            return self._sweep.of_trial(trial.number, settings)
        except UserError:  # an invalid combination, which the check of each range alone could not find
            self.conclude(trial.number, None, False)
            return self.propose()

    def falls_behind(self, trial: int, fraction: float, value: float) -> bool:
        """Take an intermediate value, and return whether to end the trial early."""
        step = math.floor(fraction * REPORTS)
        if self._sweep.options.pruner == "none" or step <= self._reported.get(trial, 0) or fraction >= 1:
            return False
        self._reported[trial] = step
        open_trial = self._optuna.trial.Trial(self._study, self._study.trials[trial]._trial_id)
        open_trial.report(value, step)
        return bool(open_trial.should_prune())

    def conclude(self, trial: int, value: float | None, pruned: bool) -> None:
        """Take the final value; None: there is none, because its members failed."""
        if self._study.trials[trial].state.is_finished():  # concluded before the sweep was continued
            return
        if pruned:
            self._study.tell(trial, state=self._states.PRUNED)
        elif value is None:
            self._study.tell(trial, state=self._states.FAIL)
        else:
            self._study.tell(trial, value)

    def _retried(self) -> int:
        return sum(RETRIES in trial.user_attrs for trial in self._study.trials)

    def _enqueue_failed(self) -> None:
        repeated = {trial.user_attrs.get(RETRIES) for trial in self._study.trials}
        for trial in self._study.trials:
            if trial.state == self._states.FAIL and trial.number not in repeated:
                self._study.enqueue_trial(trial.params, user_attrs={RETRIES: trial.number})

    def _settings_of(self, trial: Any) -> Settings:
        ranges = self._sweep.options.search
        return {key: decoded(value, ranges.get(key, {})) for key, value in trial.params.items()}


def make_sampler(optuna: Any, options: Options, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some samplers are marked experimental
        try:
            return getattr(optuna.samplers, SAMPLERS[options.sampler])(seed=seed)
        except ImportError as error:
            package = error.name or "another package"
            raise UserError(f"sweep.sampler={options.sampler} needs the package {package}: pip install it") from None


def suggest(trial: Any, key: str, given: dict[str, Any]) -> Any:
    """Return a value for a setting, from its range or choices."""
    if "choices" in given:
        return decoded(trial.suggest_categorical(key, encoded(given["choices"])), given)
    low, high, log = given["low"], given["high"], given.get("log", False)
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(key, low, high, log=log)
    return trial.suggest_float(key, low, high, log=log)


def encoded(choices: list[Any]) -> list[Any]:
    """Return choices as Optuna can store them: lists and dicts become JSON."""
    return [json.dumps(value) for value in choices] if has_nested(choices) else choices


def decoded(value: Any, given: dict[str, Any]) -> Any:
    """Undo `encoded` for one value."""
    return json.loads(value) if has_nested(given.get("choices", [])) else value


def has_nested(choices: list[Any]) -> bool:
    return any(isinstance(value, list | dict) for value in choices)
