"""From a target to numbers: the fewest learners, then the fewest actors, whose simulation reaches it.

One machine is tried first: a learner and its actors share the cores, over shared memory. If that is not enough, each
learner gets a machine of its own, with its gateway, and actors play on others, one for each core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pronk.config import ResolvedConfig
from pronk.planning.costs import Costs
from pronk.planning.pipeline import Pipeline, Prediction
from pronk.planning.simulation import simulate

MOST_LEARNERS = 1024  # as learners.count
MOST_EXTRA_ACTORS = 1.6  # times as many as would do if they never waited; if these are too few, so are more
HEADROOM = 0.9  # share of a gateway or a network card that is planned for: real unrolls do not come evenly spaced
NEARLY = 0.999  # of the target: the simulation is of a few thousand unrolls, and ends between two updates


@dataclass(frozen=True)
class Request:
    """What to plan for. None: not limited, or as configured."""

    cores: int
    """Of each machine."""
    target: float | None = None
    """Environment steps per second. None: predict the configuration as it is, on one machine."""
    machines: int | None = None
    bandwidth: float | None = None
    """Bytes per second of a machine's network card, in each direction."""
    learner_rate: float | None = None
    """Steps per second that one learner learns from on a device of its own, instead of the measured cost."""


@dataclass(frozen=True)
class Plan:
    """The numbers, and what the simulation predicts for them."""

    pipeline: Pipeline
    prediction: Prediction
    actor_machines: int
    reached: bool

    @property
    def learners(self) -> int:
        """Of all machines. Each has a gateway, if there is a network."""
        return self.pipeline.learners

    @property
    def actors(self) -> int:
        """Of all learners."""
        return self.pipeline.learners * self.pipeline.actors

    @property
    def gateways(self) -> int:
        """One for each learner whose actors come over the network."""
        return self.pipeline.learners if self.pipeline.network else 0

    @property
    def machines(self) -> int:
        """Of learners and actors."""
        return 1 if self.pipeline.one_machine else self.pipeline.learners + self.actor_machines


def pipeline_of(config: ResolvedConfig, costs: Costs, request: Request) -> Pipeline:
    """Return the pipeline of the configuration as it is, on one machine."""
    actors, learner = config.actors, config.learner
    costs = costs.fitted(actors.envs, actors.unroll_length, learner.batch_size)
    columns = learner.batch_size / (1 - config.replay.fraction) if config.replay.size else learner.batch_size
    rows = actors.unroll_length * columns
    rate = request.learner_rate
    return Pipeline(
        actors=max(1, actors.count),
        steps=actors.envs * actors.unroll_length,
        actor_seconds=costs.actor * actors.envs * actors.unroll_length,
        update_seconds=rows / rate if rate else rows * costs.update,
        slots=actors.slots,
        unrolls_per_batch=max(1, learner.batch_size // actors.envs),
        batches_per_unroll=max(1, actors.envs // learner.batch_size),
        passes=learner.passes,
        sync_every=actors.sync_every,
        learners=config.learners,
        cores=request.cores,
        threads=min(costs.threads, request.cores),
        on_device=rate is not None or costs.device != "cpu",
        crowding=costs.crowding,
        network=config.has_gateway,
        unroll_bytes=costs.unroll_bytes,
        parameters_bytes=costs.parameters_bytes,
        pull_seconds=costs.pull or 0.0,
        send_seconds=costs.send or 0.0,
        gateway_seconds=costs.gateway or 0.0,
        exchange_seconds=costs.exchange or 0.0,
    )


def make_plan(config: ResolvedConfig, costs: Costs, request: Request) -> Plan:
    """Return the smallest plan that reaches the target, or, if there is none, the fastest."""
    configured = pipeline_of(config, costs, request)
    if request.target is None:
        return Plan(configured, simulate(configured), 0, reached=True)
    on_one = on_one_machine(configured, request.target)
    if on_one.reached or request.machines == 1:
        return on_one
    spread = replace(configured, one_machine=False, network=True, bandwidth=request.bandwidth, learners=1)
    found = on_many_machines(spread, request)
    if found is None:
        return on_one
    return max((on_one, found), key=lambda plan: (plan.reached, plan.prediction.steps_per_second))


def on_one_machine(pipeline: Pipeline, target: float) -> Plan:
    """Return the fewest actors that reach the target beside one learner; else the number that is fastest."""
    pipeline = replace(pipeline, learners=1)
    best: Plan | None = None
    least = least_actors(pipeline)
    for actors in range(least, max(least, min(pipeline.cores, most_actors(pipeline))) + 1):
        plan = plan_of(replace(pipeline, actors=actors), target, actor_machines=0)
        if best is None or plan.prediction.steps_per_second > best.prediction.steps_per_second:
            best = plan
        if plan.reached:
            return plan
    assert best is not None
    return best


def on_many_machines(pipeline: Pipeline, request: Request) -> Plan | None:
    """Return the fewest learners, and the fewest actors for them, that reach the target; else the fastest plan.

    None: there are too few machines for a learner and the actors of one batch.
    """
    target, machines, cores = request.target or 0.0, request.machines, request.cores
    most_learners, capacity = MOST_LEARNERS, learner_capacity(pipeline)
    if machines is not None:  # as many as leave each of them the actors of a batch
        most_learners = min(MOST_LEARNERS, machines * cores // (cores + least_actors(pipeline)))

    def room(learners: int) -> int | None:
        """Actors per learner for which the remaining machines have a core."""
        return None if machines is None else (machines - learners) * cores // learners

    def estimate(learners: int) -> float:
        actors = room(learners)
        rate = capacity if actors is None else min(capacity, actors * actor_rate(pipeline))
        return min(target, learners * rate)

    best: Plan | None = None
    # The most promising first; of equals, the fewest learners. The estimate does not know what their exchange costs: it
    # may take more than further learners add.
    for learners in sorted(range(1, most_learners + 1), key=estimate, reverse=True):
        plan = fewest_actors(replace(pipeline, learners=learners), target, cores, room(learners))
        if best is not None and plan.prediction.steps_per_second <= best.prediction.steps_per_second:
            break
        best = plan
        if best.reached:
            break
    return best


def fewest_actors(pipeline: Pipeline, target: float, cores: int, room: int | None) -> Plan:
    """Return the plan with the fewest actors per learner, at most `room`, that reaches the target; else with the most.

    `cores`: of a machine of actors.
    """
    least, most = least_actors(pipeline), most_actors(pipeline)
    low = max(least, math.floor(target / pipeline.learners / actor_rate(pipeline)))
    high = max(low + 2, math.ceil(MOST_EXTRA_ACTORS * low))
    low, high = min(low, most), min(high, most)
    if room is not None:
        low, high = min(low, room), min(high, room)

    def with_actors(count: int) -> Plan:
        return plan_of(replace(pipeline, actors=count), target, math.ceil(pipeline.learners * count / cores))

    plan = with_actors(low)
    if plan.reached or low == high:
        return plan
    best = with_actors(high)
    if not best.reached:
        return best
    while high - low > 1:
        middle = (low + high) // 2
        plan = with_actors(middle)
        if plan.reached:
            best, high = plan, middle
        else:
            low = middle
    return best


def plan_of(pipeline: Pipeline, target: float, actor_machines: int) -> Plan:
    """Simulate a pipeline, and compare it with the target."""
    prediction = simulate(pipeline)
    return Plan(pipeline, prediction, actor_machines, prediction.steps_per_second >= NEARLY * target)


def least_actors(pipeline: Pipeline) -> int:
    """Return how many actors of one learner can have the unrolls of a batch ready."""
    return math.ceil(pipeline.unrolls_per_batch / pipeline.slots)


def most_actors(pipeline: Pipeline) -> int:
    """Return how many actors of one learner are worth trying: further ones would wait for it."""
    enough = math.ceil(MOST_EXTRA_ACTORS * learner_capacity(pipeline) / actor_rate(pipeline))
    return least_actors(pipeline) + 2 + enough


def actor_rate(pipeline: Pipeline) -> float:
    """Return the steps per second of an actor that never waits, on a core of a machine whose cores are all busy."""
    return pipeline.steps / (pipeline.actor_seconds + (pipeline.send_seconds if pipeline.network else 0.0))


def learner_capacity(pipeline: Pipeline) -> float:
    """Return the steps per second to plan for at most with one learner, its gateway and its network card."""
    passes = 1 if pipeline.passes == "idle" else pipeline.passes
    limits = [pipeline.steps_per_update / pipeline.update_seconds / passes]
    if pipeline.gateway_seconds:
        limits.append(HEADROOM * pipeline.steps / pipeline.gateway_seconds)
    if pipeline.bandwidth and pipeline.unroll_bytes:
        limits.append(HEADROOM * pipeline.bandwidth / pipeline.unroll_bytes * pipeline.steps)
    return min(limits)
