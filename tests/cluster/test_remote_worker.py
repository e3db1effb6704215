"""What a worker makes of messages, with a script in place of another machine."""

import signal

import pytest

from pronk.cluster.base import Placement
from pronk.cluster.cluster_run import ACTOR_POLICY, LEARNER_POLICY
from pronk.cluster.progress import describe_hosts
from pronk.cluster.remote_worker import RemoteWorker, State
from pronk.processes.messages import Exited, Failed, Joined, Listening, RunCommand, RunnerLost, RunnerReady, Started


class Scripted:
    """A `RemoteProcess` that receives what a test puts there."""

    def __init__(self):
        self.messages, self.closed = [RunnerReady(free_port=1, cores=2)], False

    def receive(self):
        messages, self.messages = self.messages, []
        return messages

    def run(self, command):
        self.messages.append(Started(shared=False))

    def stop(self):
        self.messages.append(Exited(130))

    def close(self):
        self.closed = True


def started(role="actor", index=0, policy=ACTOR_POLICY):
    process = Scripted()
    worker = RemoteWorker(role, index, Placement("alpha", lambda: process, "10.0.0.1"), policy)
    worker.connect_if_due()
    worker.poll()
    worker.run(RunCommand([role]))
    return worker, process


def end(worker, process, *messages):
    process.messages += messages
    worker.poll()
    assert worker.state is State.ENDED
    return worker.end


def test_an_actor_is_up_when_it_has_joined_not_when_it_was_started():
    worker, process = started()
    worker.poll()
    assert worker.state is State.STARTED
    assert "actors: 0 of 1 up" in describe_hosts([], [worker])
    process.messages.append(Joined())
    worker.poll()
    assert "actors: 1 of 1 up (alpha 1)" in describe_hosts([], [worker])


def test_a_learner_is_reached_at_the_name_of_its_host_and_the_port_it_reports():
    worker, process = started("learner", policy=LEARNER_POLICY)
    process.messages.append(Listening("0.0.0.0:5050"))
    worker.poll()
    assert worker.address == "10.0.0.1:5050"


def test_how_it_ended_comes_from_messages():
    assert end(*started(), Failed("wrong token", mistake=True), Exited(2)).is_mistake
    assert end(*started(), Failed("Traceback\nValueError: x"), Exited(1)).brief == "ValueError: x"
    assert not end(*started(), Exited(-signal.SIGKILL)).is_fault
    assert end(*started(), Exited(-signal.SIGSEGV)).is_fault
    assert not end(*started(), RunnerLost("Connection closed")).is_fault
    assert end(*started("learner"), Exited(130)) is None
    assert end(*started(), Exited(0)) is None


@pytest.mark.parametrize(("code", "gives_up"), [(-signal.SIGSEGV, True), (1, True), (-signal.SIGKILL, False)])
def test_a_learner_that_crashes_by_itself_is_not_restarted_however_long_it_ran(code, gives_up, monkeypatch):
    worker, process = started("learner", policy=LEARNER_POLICY)
    end(worker, process, Listening("0.0.0.0:1"), Exited(code))
    monkeypatch.setattr(worker, "_connected_at", -3600.0)
    assert (worker.pause_after_end() is None) == gives_up


def test_pauses_grow_until_it_was_up_again():
    worker, process = started()
    pauses = []
    for messages in [(), (), (Joined(),)]:
        end(worker, process, *messages, RunnerLost("gone"))
        pauses.append(worker.pause_after_end())
        worker.restart_in(0.0)
        assert process.closed
        process.messages.append(RunnerReady(free_port=1, cores=2))
        worker.connect_if_due()
        worker.poll()
        worker.run(RunCommand(["actor"]))
    assert pauses == [1.0, 2.0, 1.0]
