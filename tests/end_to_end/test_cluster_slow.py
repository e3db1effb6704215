"""CartPole solved while actors come and go; a network that goes away and comes back."""

import contextlib
import os
import random
import signal
import subprocess
import time

import pytest
from cluster import SMALL, START, Actor, Learner, credentials, tls
from processes import read_metrics, read_summary, wait_until
from through_grpc import make_certificate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def secured(tmp_path):
    """A certificate and a token."""
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple")
    return make_certificate(tmp_path), token


def test_cartpole_is_solved_while_actors_are_killed_added_and_removed(tmp_path, secured):
    chance = random.Random(1)
    arguments = ["cartpole", *tls(*secured), "learner.threads=1", "actors.envs=16", "run.total_steps=20e6"]
    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(Learner(tmp_path / "run", *arguments))
        address = learner.wait_until_it_listens()
        started = 0

        def start() -> Actor:
            nonlocal started
            started += 1
            return stack.enter_context(Actor(tmp_path / f"{started}.out", address, *credentials(*secured)))

        actors = [start() for _ in range(4)]
        for actor in actors:
            actor.wait_until_it_says("joined")
        deadline = time.monotonic() + 3000
        while learner.running and time.monotonic() < deadline:
            playing = [actor for actor in actors if "joined" in actor.said]
            if len(playing) < 3:  # others are still on their way; a batch needs the slots of two
                time.sleep(1)
                continue
            leaver = chance.choice(playing)
            actors.remove(leaver)
            leaver.send(chance.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
            code = leaver.wait()
            if code == -signal.SIGINT:  # Python itself was ending already, because the run had
                assert learner.wait(60) == 0
            else:
                assert code in (-signal.SIGKILL, 130, 0)
            actors.append(start())
            end = time.monotonic() + 5
            wait_until(lambda end=end: not learner.running or time.monotonic() > end, 60, "a while")
        assert learner.wait(60) == 0, learner.err
        for actor in actors:  # one that was still starting finds nobody
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert actor.wait(5) == 0, actor.said
        learner.assert_nothing_left()
    summary = read_summary(learner.path)
    assert summary["outcome"] == "solved"
    assert summary["episode_return"] >= 475
    assert started > 4


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


@pytest.fixture
def two_hosts():
    """Network namespaces with one cable between them: names to run things in."""
    here, there, cable = (f"pronk{os.getpid()}{end}" for end in "abc")
    with contextlib.ExitStack() as stack:
        try:
            for host in (here, there):
                run("ip", "netns", "add", host)
                stack.callback(subprocess.run, ["ip", "netns", "del", host], capture_output=True)
            run("ip", "link", "add", cable, "netns", here, "type", "veth", "peer", "name", cable, "netns", there)
            for host, number in ((here, 1), (there, 2)):
                run("ip", "-n", host, "addr", "add", f"10.77.0.{number}/24", "dev", cable)
                run("ip", "-n", host, "link", "set", cable, "up")
                run("ip", "-n", host, "link", "set", "lo", "up")
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"this machine allows no network namespaces: {getattr(error, 'stderr', None) or error}")
        yield here, there, cable


def test_a_network_that_is_cut_for_40_seconds_and_comes_back(tmp_path, secured, two_hosts):
    here, there, cable = two_hosts
    arguments = ["catch", *SMALL, *tls(*secured), "run.total_steps=1e9", "actors.timeout_seconds=600"]
    with contextlib.ExitStack() as stack:
        inside = ("ip", "netns", "exec", here)
        learner = stack.enter_context(Learner(tmp_path / "run", *arguments, address="10.77.0.1:0", within=inside))
        address = learner.wait_until_it_listens()
        outside = ("ip", "netns", "exec", there)
        actors = [
            stack.enter_context(Actor(tmp_path / f"{i}.out", address, *credentials(*secured), within=outside))
            for i in range(2)
        ]
        learner.wait_for_steps(2000)
        for actor in actors:
            actor.wait_until_it_says("joined")
        run("ip", "-n", here, "link", "set", cable, "down")
        cut_at = time.monotonic()
        wait_until(lambda: learner.log.count(" leaves: ") == 2, 30, "that the learner notices")
        for actor in actors:
            actor.wait_until_it_says("no learner at", 30)
        noticed = time.monotonic() - cut_at
        steps = learner.steps
        time.sleep(max(0.0, 40 - noticed))
        assert learner.steps <= steps + 1000
        run("ip", "-n", here, "link", "set", cable, "up")
        learner.wait_for_steps(2000)
        wait_until(lambda: learner.log.count(" joins: ") == 4, START, "both actors")
        for actor in actors:
            assert actor.process.poll() is None
            assert "was restarted" not in actor.said
        learner.send(signal.SIGINT)
        learner.wait()
    assert noticed < 25  # 20 s, and what a busy machine adds
    assert "waiting for actors" in learner.err
    assert read_metrics(learner.path)
