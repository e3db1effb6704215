"""MLflow. Its own environment variables decide where to: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, ...

A resumed training continues the same run there: its id is kept in the run directory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from typing import Any

from pronk.config.trees import flat
from pronk.sinks.outside import Facts, numbers, remembered

AT_ONCE = 100  # parameters in one request: MLflow's own limit
# By default MLflow retries for many minutes, which would keep a finished training from ending.
IMPATIENT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
LONGEST = 500  # characters of a parameter's value that every store takes


class MLflow:
    """A `Sink`. The configuration becomes parameters, the metrics' step is the environment step."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def __enter__(self) -> MLflow:
        for name, value in IMPATIENT.items():
            os.environ.setdefault(name, value)
        for teller in ("alembic", "mlflow.store.db.utils"):  # they log each table that they create
            logging.getLogger(teller).setLevel(logging.WARNING)
        from mlflow.tracking import MlflowClient

        self._client, known = MlflowClient(), self._facts.path / "mlflow.id"
        identity = remembered(known)
        if identity is None or not self._continue_run(identity):
            identity = self._begin()
            known.write_text(identity + "\n")
        self._identity = identity
        return self

    def _continue_run(self, identity: str) -> bool:
        """Open the run of a resumed training again; False if the store does not have it."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.update_run(identity, status="RUNNING")
        except MlflowException:
            return False
        return True

    def _begin(self) -> str:
        from mlflow.entities import Param

        run = self._client.create_run(self._experiment(), run_name=self._facts.name)
        parameters = [Param(key, str(value)[:LONGEST]) for key, value in flat(self._facts.config).items()]
        for start in range(0, len(parameters), AT_ONCE):
            self._client.log_batch(run.info.run_id, params=parameters[start : start + AT_ONCE])
        return run.info.run_id

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "pronk")
        known = self._client.get_experiment_by_name(name)
        if known is None:
            with contextlib.suppress(MlflowException):  # another training was faster
                return self._client.create_experiment(name)
            known = self._client.get_experiment_by_name(name)
        return known.experiment_id

    def __exit__(self, *exception: object) -> None:
        self._client.set_terminated(self._identity, "FAILED" if exception[0] else "FINISHED")

    def write(self, line: dict[str, Any]) -> None:
        """One point of every curve."""
        self._log("", line)

    def evaluated(self, line: dict[str, Any]) -> None:
        """One point of every curve of evaluations."""
        self._log("eval/", line)

    def _log(self, group: str, line: dict[str, Any]) -> None:
        from mlflow.entities import Metric

        now, step = int(time.time() * 1000), int(line["env_steps"])
        points = [Metric(group + name, value, now, step) for name, value in numbers(line).items()]
        self._client.log_batch(self._identity, metrics=points)
