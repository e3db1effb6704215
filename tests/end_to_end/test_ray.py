"""`cluster=ray` on a real Ray whose nodes are processes of this machine."""

import json
import os
import re
import shutil
import signal
from importlib.util import find_spec

import pytest
from processes import SUPPORT, Training, read_metrics, read_summary

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
SMALL = ("actors.envs=16", "actors.unroll_length=20", "learner.batch_size=16", "actors.slots=1", "actors.count=auto")
ENDLESS = ("run.total_steps=1e9", "run.stop_return=null", "checkpoint.every_seconds=1")


@pytest.fixture(scope="module")
def cluster():
    """A head, where the learner finds its core, and a node for an actor."""
    # Ray reads these when a node starts. At its usual niceness of 15 its workers starve beside other tests.
    os.environ |= {"RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0"}
    from ray.cluster_utils import Cluster  # half a second, which every worker would pay at collection

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        cluster.shutdown()


def on(cluster, path, *arguments):
    return Training(path, *arguments, "cluster=ray", f"cluster.address={cluster.address}", relative=True, fresh=True)


def test_a_lost_node_is_survived_and_a_new_one_is_used(cluster, tmp_path):
    shutil.copy(SUPPORT / "faulty.py", tmp_path)  # where the processes run
    with on(cluster, tmp_path / "run", "faulty:SlowCatch", *SMALL, *ENDLESS) as training:
        lost = cluster.add_node(num_cpus=1)
        training.wait_until(lambda: "actors: 2 of 2 up" in training.out, "two actors", 180)
        training.wait_until(lambda: training.metrics(), "the start", 120)
        cluster.remove_node(lost, allow_graceful=False)
        training.wait_until(lambda: "actors: 1 of 2 up" in training.out, "the loss", 180)
        before = training.metrics()[-1]["env_steps"]
        training.wait_until(lambda: training.metrics()[-1]["env_steps"] > before + 3000, "that it goes on", 120)
        added = cluster.add_node(num_cpus=2)
        training.wait_until(lambda: re.search(r"actors: 3 of \d up", training.out), "that the new node is used", 180)
        training.send(signal.SIGINT)
        assert training.wait(120) == 130
        training.assert_nothing_left()
        cluster.remove_node(added, allow_graceful=False)
    assert read_summary(tmp_path / "run")["outcome"] == "interrupted"


@pytest.mark.slow
def test_two_learners_with_actors_of_their_own(cluster, tmp_path):
    room = cluster.add_node(num_cpus=2)
    with on(cluster, tmp_path / "run", "catch", *SMALL, "learners=2", "learner.batch_size=32") as training:
        assert training.wait(300) == 0
    assert read_summary(tmp_path / "run")["outcome"] == "solved"
    cluster.remove_node(room, allow_graceful=False)


def test_members_of_a_sweep_run_on_the_cluster(cluster, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        f"""base: catch
transport: local
cluster: {{name: ray, address: "{cluster.address}"}}
run: {{total_steps: 3200, stop_return: null}}
sweep: {{seeds: 2, at_a_time: 2}}
"""
    )
    with Training(tmp_path / "sweep", "mine.yaml", command="sweep", relative=True) as sweep:
        assert sweep.wait(180) == 0, sweep.err
        sweep.assert_nothing_left()
    assert "2 running" in sweep.out
    assert [read_summary(tmp_path / f"sweep/seed={seed}")["env_steps"] for seed in (1, 2)] == [3200] * 2


@pytest.mark.slow
def test_a_population_runs_on_the_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    (tmp_path / "mine.yaml").write_text(
        """base: catch
transport: local
run: {total_steps: 6400, stop_return: null}
population:
  {size: 2, ready_steps: 3200, burn_in_steps: 0, margin: 0, priors: {loss.entropy_cost: {low: 0.001, high: 0.1}}}
"""
    )
    arguments = ("mine.yaml", "--workers", "ray")
    with Training(tmp_path / "people", *arguments, command="population", relative=True) as population:
        assert population.wait(300) == 0, population.err
        population.assert_nothing_left()
    members = json.loads((tmp_path / "people/population.json").read_text())["rounds"][1]["members"]
    assert [member["state"] for member in members] == ["finished", "finished"]
    assert sum(member["parent"] is not None for member in members) == 1
    assert [read_summary(tmp_path / f"people/member-0{number}")["env_steps"] for number in (0, 1)] == [6400, 6400]


def test_no_cluster_there_is_said(tmp_path):
    with Training(tmp_path / "run", "catch", "cluster=ray", "cluster.address=127.0.0.1:1") as training:
        assert training.wait(120) == 2
    assert "cluster.address" in training.err
    assert "Traceback" not in training.err


@pytest.mark.slow
def test_cartpole_is_solved(cluster, tmp_path):
    with on(cluster, tmp_path / "run", "cartpole") as training:
        assert training.wait(400) == 0
    assert read_summary(tmp_path / "run")["outcome"] == "solved"
    assert read_metrics(tmp_path / "run")


@pytest.mark.slow
def test_without_a_cluster_one_is_started_here_and_ended(tmp_path):
    with Training(tmp_path / "run", "catch", *SMALL, "cluster=ray") as training:
        assert training.wait(400) == 0
        training.assert_nothing_left(20)
    assert read_summary(tmp_path / "run")["outcome"] == "solved"
