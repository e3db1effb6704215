"""kill -9 at any instant, of actors and of the learner."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from processes import (
    SIZES,
    STEPS_PER_UPDATE,
    SUPPORT,
    Training,
    assert_monotone,
    assert_resumes,
    checksum,
    checksummed_specs,
    read_summary,
    trainings_at_once,
)

from pronk.layout import UnrollLayout
from pronk.runs.directory import RunDirectory
from pronk.transport.shared_memory import SharedMemoryTransport
from pronk.types import Parameters

KILLS = int(os.environ.get("PRONK_TEST_KILLS", "6"))
ENDLESS = (*SIZES, "run.log_every_seconds=0.1", "run.stop_return=null", "run.total_steps=1e9")
ONE_OF_EACH = ("actors.count=1", "actors.envs=1", "learner.batch_size=1", "learner.passes=1")


@pytest.mark.timeout(120 + 10 * KILLS)
def test_training_goes_on_when_actors_are_killed_at_random_instants(tmp_path: Path) -> None:
    chance = random.Random(KILLS)
    with Training(tmp_path / "run", "faulty:SlowCatch", "actors.count=2", *ENDLESS) as training:
        for kill in range(KILLS):
            life, actor = divmod(kill, 2)
            training.wait_until(lambda actor=actor, life=life: len(training.lives(actor)) > life, "its next life")
            victim = training.lives(actor)[life]
            assert victim.number == life
            assert victim.pid in {process.pid for process in training.descendants()}
            if life % 2 == 0:  # while it plays; else while it starts, but not so often that it counts as hopeless
                wait_for_delivery(training, actor, life)
            time.sleep(chance.uniform(0.0, 0.4))
            os.kill(victim.pid, signal.SIGKILL)
        updates = training.metrics()[-1]["updates"]
        for actor in (0, 1):
            wait_for_delivery(training, actor, (KILLS + 1 - actor) // 2)
        training.wait_until(lambda: training.metrics()[-1]["updates"] > updates, "more updates")
        training.send(signal.SIGINT)
        assert training.wait() == 130
        training.assert_nothing_left()

        lines, summary = training.metrics(), read_summary(training.path)
        assert_monotone(lines)
        assert all(line["env_steps"] == line["updates"] * STEPS_PER_UPDATE for line in [*lines, summary])
        assert summary["env_steps"] == lines[-1]["env_steps"] > 0
        assert training.err.count("killed by SIGKILL") == KILLS
        assert "Traceback" not in training.err
        pids = [life.pid for actor in (0, 1) for life in training.lives(actor)]
        assert len(set(pids)) == len(pids) == KILLS + 2


def wait_for_delivery(training: Training, actor: int, life: int) -> None:
    """Until this life of the actor has certainly delivered something."""
    training.wait_until(
        lambda: len(training.lives(actor)) > life and "delivered" in training.lives(actor)[life].log, "its first unroll"
    )


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Training]]:
    folder = tmp_path_factory.mktemp("kill")
    commands = {
        "playing": ("faulty:SlowCatch", "actors.count=2", "checkpoint.every_seconds=0.3", *ENDLESS),
        "hanging": ("faulty:HangsInStep", "env.kwargs.after=30", "env.vectorization=async", *ENDLESS, *ONE_OF_EACH),
    }
    with trainings_at_once(folder, commands) as started:
        yield started


def test_actors_and_their_processes_end_with_a_killed_learner_while_an_environment_hangs(
    trainings: dict[str, Training],
) -> None:
    training = trainings["hanging"]
    training.wait_until(lambda: training.lives(0) and "hanging" in training.lives(0)[0].log, "the hang")
    assert training.descendants(), "its actor, and the actor's environment"
    training.send(signal.SIGKILL)
    assert training.wait() == -signal.SIGKILL
    training.assert_nothing_left()


def test_actors_end_with_a_killed_learner_and_resume_goes_on_from_its_checkpoint(
    trainings: dict[str, Training],
) -> None:
    playing = trainings["playing"]
    run = RunDirectory(playing.path)
    playing.wait_until(lambda: len(run.checkpoints.saved()) >= 2 and playing.metrics()[1:], "checkpoints")
    assert len(playing.descendants()) >= 2
    playing.send(signal.SIGKILL)
    assert playing.wait() == -signal.SIGKILL
    playing.assert_nothing_left()
    saved = run.checkpoints.restore()[0]["metrics"]
    with open(run.metrics, "a") as file:
        file.write('{"wall_seconds": 1.5, "env_st')
    assert_resumes(run.path, saved, "catch", "actors.count=1", "--run-dir", run.path)
    assert all(line["env_steps"] == line["updates"] * STEPS_PER_UPDATE for line in playing.metrics())


SLOTS, ACTORS = 3, 3


def test_no_torn_unroll_arrives_and_no_slot_is_lost() -> None:
    chance = random.Random(1)
    transport = SharedMemoryTransport(UnrollLayout(checksummed_specs()), 64, ACTORS, SLOTS)
    transport.while_waiting = deadline(60.0)
    transport.publish(Parameters(0, np.zeros(64, np.uint8)))
    with ExitStack() as stack:
        stack.enter_context(transport)
        fillers = [stack.enter_context(Filler(transport, actor)) for actor in range(ACTORS)]
        arrived = kills = 0
        while arrived < 300 or kills < 25:
            victim = fillers[chance.randrange(ACTORS)] if chance.random() < 0.15 else None
            with transport.unrolls(chance.randint(1, SLOTS)) as unrolls:
                if victim is not None:  # the learner may hold some of its slots
                    victim.kill()
                    kills += 1
                arrived += len(unrolls)
                assert all(unroll.version[0] == checksum(unroll) for unroll in unrolls)
                if chance.random() < 0.5:
                    assert transport.waiting < SLOTS * ACTORS  # looks, and so notices who is gone
            if victim is not None:
                victim.start()
        with transport.unrolls(SLOTS * ACTORS) as unrolls:  # every slot there is, at the same time
            assert len({unroll.version.ctypes.data for unroll in unrolls}) == SLOTS * ACTORS
            assert all(unroll.version[0] == checksum(unroll) for unroll in unrolls)


def deadline(seconds: float) -> Callable[[], None]:
    end = time.monotonic() + seconds

    def check() -> None:
        assert time.monotonic() < end, "no unrolls come any more"

    return check


class Filler:
    """A process that fills unrolls until it is killed."""

    def __init__(self, transport: SharedMemoryTransport, actor: int) -> None:
        self._transport, self._actor = transport, actor

    def __enter__(self) -> Filler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        ticket, inherited = self._transport.connect(self._actor)
        command = [sys.executable, "-m", "processes", json.dumps(asdict(ticket))]
        with inherited:
            self._process = subprocess.Popen(command, pass_fds=ticket.descriptors, cwd=SUPPORT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
