"""The simulation against cases whose result is known in closed form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pronk.planning import simulated
from pronk.planning.events import Clock, SharedResource, cores, link
from pronk.planning.pipeline import Pipeline
from pronk.planning.simulation import Simulation, simulate
from pronk.types import UserError

# Unrolls of 100 steps, 10 ms to play; updates of 2 ms; more cores than anybody needs.
BASE = Pipeline(actors=1, steps=100, actor_seconds=0.010, update_seconds=0.002, cores=64)
REMOTE = replace(
    BASE, one_machine=False, network=True, bandwidth=1e12, unroll_bytes=1_000_000, parameters_bytes=1000, actors=8
)


def rate(**changes):
    return simulate(replace(BASE, **changes)).steps_per_second


def near(value, tolerance=0.02):
    return pytest.approx(value, rel=tolerance)


@pytest.mark.parametrize("actors", [1, 2, 4])
def test_actors_that_never_wait_set_the_speed(actors):
    found = simulate(replace(BASE, actors=actors))
    assert found.steps_per_second == near(actors * 100 / 0.010)
    assert found.utilisation["actors"] == near(1.0)
    assert found.utilisation["learner"] == near(actors * 0.2)
    assert found.learner_waits == near(1 - actors * 0.2)


@pytest.mark.parametrize(("actors", "slots"), [(8, 2), (20, 1), (20, 4)])
def test_a_learner_that_never_waits_sets_the_speed_and_the_slots_bound_the_lag(actors, slots):
    found = simulate(replace(BASE, actors=actors, slots=slots))
    assert found.steps_per_second == near(100 / 0.002)
    assert found.utilisation["learner"] == near(1.0)
    assert found.learner_waits == near(0.0)
    # Every slot holds an unroll, or one is being played into it; each waits for all before it, one update each.
    assert found.most_lag <= actors * slots + 1
    assert found.lag == pytest.approx(actors * slots, abs=2)


def test_the_lag_is_the_updates_made_while_an_unroll_is_played():
    assert simulate(replace(BASE, actors=4)).lag == pytest.approx(4, abs=1)


def test_a_batch_of_several_unrolls_is_one_update():
    found = simulate(replace(BASE, actors=16, unrolls_per_batch=4))
    assert found.updates_per_second == near(16 / 4 / 0.010)
    assert found.steps_per_second == near(16 * 100 / 0.010)
    assert found.lag == pytest.approx(4, abs=1)


def test_an_unroll_of_several_batches_is_several_updates():
    found = simulate(replace(BASE, actors=4, batches_per_unroll=4))
    assert found.updates_per_second == near(1 / 0.002)
    assert found.steps_per_second == near(100 / 0.002 / 4)


def test_passes_are_paid_for_and_the_pacer_holds_actors_back():
    free, paced = simulate(replace(BASE, actors=4)), simulate(replace(BASE, actors=4, passes=8))
    assert paced.steps_per_second == near(100 / 0.002 / 8, 0.1)
    assert paced.lag < 4 * 2 * 8 / 2  # without the pacer all slots would be filled: 64 updates
    assert free.steps_per_second == near(4 * 100 / 0.010)


def test_idle_passes_cost_no_speed():
    found = simulate(replace(BASE, passes="idle"))
    assert found.steps_per_second == near(100 / 0.010, 0.25)  # a pass under way is finished before the next unroll
    assert found.utilisation["learner"] > 0.95
    assert found.updates_per_second > 4 / 0.012


def test_processes_of_one_core_take_turns():
    assert rate(cores=1) == near(100 / (0.010 + 0.002))


def test_processes_share_two_cores():
    # Two actors and a learner: all cores are busy, and an unroll takes 12 ms of a core.
    found = simulate(replace(BASE, cores=2, actors=2))
    assert found.utilisation["cores"] == near(1.0, 0.05)
    assert found.steps_per_second == near(2 * 100 / 0.012, 0.05)


def test_a_core_whose_neighbour_is_idle_is_faster():
    speed = cores(4, crowding=0.5)
    assert [speed(jobs) for jobs in (1, 4, 8)] == [2.0, 1.0, 0.5]
    assert speed(2) == near(1 / (0.5 + 0.5 / 3))
    assert cores(1, crowding=0.5)(1) == 1.0


def test_an_idle_core_is_not_busy_however_fast_the_others_are():
    # Two actors and a learner that hardly works, on four cores that are four times as fast while the others are idle.
    found = simulate(replace(BASE, actors=2, update_seconds=1e-6, cores=4, crowding=0.25))
    assert found.steps_per_second > 3 * 100 / 0.010
    assert found.utilisation["cores"] == near(0.5)


def test_a_network_card_sets_the_speed():
    found = simulate(replace(REMOTE, bandwidth=1e8))  # 100 unrolls/s; eight actors could play 800
    assert found.steps_per_second == near(100 * 100)
    assert found.up == near(1e8)
    assert found.utilisation["up"] == near(1.0)
    assert found.utilisation["actors"] < 0.5


def test_parameters_fill_a_network_card_unless_they_are_fetched_less_often():
    large = replace(REMOTE, bandwidth=1e9, parameters_bytes=10_000_000, unroll_bytes=10)
    often, seldom = simulate(large), simulate(replace(large, sync_every=4))
    assert often.steps_per_second == near(100 * 100)
    assert often.utilisation["down"] == near(1.0)
    assert seldom.steps_per_second > 3 * often.steps_per_second


def test_a_gateway_sets_the_speed():
    found = simulate(replace(REMOTE, gateway_seconds=0.005))
    assert found.steps_per_second == near(100 / 0.005)
    assert found.utilisation["gateway"] == near(1.0)


def test_what_an_actor_sends_costs_it_time():
    slow = replace(REMOTE, actors=2, send_seconds=0.002, pull_seconds=0.003)
    assert simulate(slow).steps_per_second == near(2 * 100 / (0.010 + 0.002 + 0.003))


def test_learners_on_one_machine_double_the_speed_but_for_their_exchange():
    found = simulate(replace(BASE, actors=20, learners=2, exchange_seconds=0.001))
    assert found.steps_per_second == near(2 * 100 / (0.002 + 0.001))


def test_learners_on_several_machines_send_their_gradients():
    found = simulate(replace(REMOTE, actors=40, learners=4, bandwidth=1e9, parameters_bytes=1_000_000, unroll_bytes=10))
    transfer = 2 * 1_000_000 * 3 / 4 / 1e9
    assert found.steps_per_second == near(4 * 100 / (0.002 + transfer))


def test_a_device_of_its_own_leaves_the_cores_to_the_actors():
    assert rate(cores=2, actors=2, on_device=True) == near(2 * 100 / 0.010)


@pytest.mark.parametrize(
    "changes",
    [{"actors": 3}, {"actors": 9, "slots": 3}, {"actors": 8, "unrolls_per_batch": 4}, {"batches_per_unroll": 3}],
    ids=str,
)
def test_no_unroll_is_lost_or_learnt_twice(changes):
    simulation = Simulation(replace(BASE, **changes))
    simulation.run()
    [learner] = simulation.learners
    played = sum(actor.played for actor in learner.actors)
    in_slots = sum(simulation.pipeline.slots - actor.free for actor in learner.actors)
    staged = played - in_slots - learner.learnt  # taken from their slots, not all of their batches learnt from
    assert 0 <= staged <= simulation.pipeline.unrolls_per_batch
    assert learner.learnt % simulation.pipeline.unrolls_per_batch == 0


def test_two_simulations_are_the_same():
    one = replace(REMOTE, gateway_seconds=0.001, send_seconds=0.002, bandwidth=3e8, passes=3)
    assert simulate(one) == simulate(one)


def test_a_batch_that_can_never_be_full_is_a_mistake():
    with pytest.raises(UserError, match=r"joins 4 unrolls, but 1 actors with actors\.slots=2 can have only 2"):
        simulate(replace(BASE, unrolls_per_batch=4))


def test_constants_are_those_of_the_real_pipeline():
    from pronk import batcher
    from pronk.transport import shared_memory

    assert simulated.MOST_PASSES == batcher.MOST_PASSES
    assert simulated.STARVING_SECONDS == shared_memory.STARVING_SECONDS


def test_jobs_share_a_resource():
    clock, done = Clock(), []
    resource = SharedResource(clock, link(10.0))
    resource.work(10, lambda: done.append(("a", clock.now)))
    clock.after(0.5, lambda: resource.work(10, lambda: done.append(("b", clock.now))))
    clock.run_while(lambda: len(done) < 2)
    assert done == [("a", pytest.approx(1.5)), ("b", pytest.approx(2.0))]  # b waits for a's half of the capacity
    assert resource.done == pytest.approx(20)
    assert resource.busy_seconds == pytest.approx(2.0)


def test_a_server_without_a_job_is_not_busy():
    clock, done = Clock(), []
    machine = SharedResource(clock, cores(2), servers=2)
    for amount in (1.0, 2.0, 3.0):
        machine.work(amount, lambda: done.append(clock.now))
    clock.run_while(lambda: len(done) < 3)
    assert done == pytest.approx([1.5, 2.5, 3.5])
    assert machine.busy_seconds == pytest.approx(2 * 2.5 + 1.0)
