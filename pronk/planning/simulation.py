"""The discrete-event simulation of training: what `training.py` wires, with costs instead of work.

All processes of one machine share its cores. Learners of one machine are simulated together. Learners of several
machines are alike and meet at every update, so one of them is simulated, and the exchange is added to its updates. The
simulation leaves out start-up, checkpoints, lost processes, and any difference between one unroll and the next.
"""

from __future__ import annotations

from collections.abc import Callable

from pronk.planning.events import Clock, SharedResource, cores, link
from pronk.planning.pipeline import Pipeline, Prediction
from pronk.planning.simulated import Learner
from pronk.types import UserError

LEAST_UNROLLS, UNROLLS_PER_ACTOR, BATCHES = 1500, 10, 50  # learnt from, per learner, before the simulation ends
WARM_UP = 0.4  # share of these that is not measured: queues fill, the pacer settles


def simulate(pipeline: Pipeline) -> Prediction:
    """Run the pipeline until enough was learnt from, and return rates of the part after the warm-up.

    Raises:
        UserError: the actors cannot have as many unrolls ready as a batch needs.
    """
    room = pipeline.actors * pipeline.slots
    if room < pipeline.unrolls_per_batch:
        raise UserError(
            f"a batch joins {pipeline.unrolls_per_batch} unrolls, but {pipeline.actors} actors with actors.slots="
            f"{pipeline.slots} can have only {room} ready: raise one of these, or actors.envs"
        )
    return Simulation(pipeline).run()


class Simulation:
    """All processes of one machine of learners, and the actors that play for them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.clock = pipeline, Clock()
        self.machine = SharedResource(self.clock, cores(pipeline.cores, pipeline.crowding), pipeline.cores)
        fast = pipeline.bandwidth or float("inf")
        self.up, self.down = (SharedResource(self.clock, link(fast)) for _ in range(2))
        self.has_links = pipeline.network and pipeline.bandwidth is not None
        self.learners = [Learner(self) for _ in range(pipeline.learners if pipeline.one_machine else 1)]
        self._arrived: list[Callable[[], None]] = []

    def run(self) -> Prediction:
        """See `simulate`."""
        pipeline, first = self.pipeline, self.learners[0]
        enough = max(LEAST_UNROLLS, UNROLLS_PER_ACTOR * pipeline.actors, BATCHES * pipeline.unrolls_per_batch)
        for learner in self.learners:
            learner.start()
        for limit in (WARM_UP * enough, enough):
            before = self._snapshot()
            if not self.clock.run_while(lambda limit=limit: first.learnt < limit):  # type: ignore[misc]
                raise RuntimeError("the simulated pipeline is stuck")
        return self._prediction(before, self._snapshot())

    def meet(self, then: Callable[[], None]) -> None:
        """Wait for the other learners of the group, exchange gradients with them, then continue."""
        pipeline = self.pipeline
        if pipeline.learners == 1:
            then()
            return
        if not pipeline.one_machine:
            # A ring all-reduce moves each gradient twice, in and out of every machine. Nothing else runs meanwhile.
            moved = 2 * pipeline.parameters_bytes * (pipeline.learners - 1) / pipeline.learners
            transfer = moved / pipeline.bandwidth if pipeline.bandwidth else 0.0
            self.clock.after(pipeline.exchange_seconds + transfer, then)
            return
        self._arrived.append(then)
        if len(self._arrived) == len(self.learners):
            arrived, self._arrived = self._arrived, []
            for each in arrived:
                self.machine.work(pipeline.exchange_seconds, each)

    def _snapshot(self) -> dict[str, float]:
        for resource in (self.machine, self.up, self.down):
            resource.catch_up()
        actors = [actor for learner in self.learners for actor in learner.actors]
        return {
            "time": self.clock.now,
            "learnt": sum(learner.learnt for learner in self.learners),
            "updates": self.learners[0].version,
            "lags": sum(learner.lags for learner in self.learners),
            "lag_count": sum(learner.lag_count for learner in self.learners),
            "waited": sum(learner.waited for learner in self.learners) / len(self.learners),
            "learner": sum(learner.busy for learner in self.learners) / len(self.learners),
            "actors": sum(actor.busy for actor in actors) / len(actors),
            "gateway": sum(learner.gateway.busy for learner in self.learners) / len(self.learners),
            "cores": self.machine.busy_seconds,
            "up": self.up.done,
            "down": self.down.done,
            "up_busy": self.up.busy_seconds,
            "down_busy": self.down.busy_seconds,
        }

    def _prediction(self, before: dict[str, float], after: dict[str, float]) -> Prediction:
        pipeline = self.pipeline
        change = {name: after[name] - before[name] for name in after}
        seconds = change["time"]
        shares = {name: change[name] / seconds for name in ("actors", "learner")}
        shares["cores"] = change["cores"] / seconds / pipeline.cores
        if pipeline.network:
            shares["gateway"] = change["gateway"] / seconds
        if self.has_links:
            shares |= {"up": change["up_busy"] / seconds, "down": change["down_busy"] / seconds}
        group = pipeline.learners / len(self.learners)
        return Prediction(
            steps_per_second=group * change["learnt"] * pipeline.steps / seconds,
            updates_per_second=change["updates"] / seconds,
            lag=change["lags"] / max(1, change["lag_count"]),
            most_lag=max(learner.most_lag for learner in self.learners),
            learner_waits=change["waited"] / seconds,
            utilisation=shares,
            up=change["up"] / seconds,
            down=change["down"] / seconds,
        )
