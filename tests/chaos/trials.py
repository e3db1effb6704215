"""Trials: a run, what is done to it, and whether all held. Each gives a `Result` for every fault."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chaos_run import COLUMNS, LIMIT, RUN, STEPS, TRANSPORTS, ChaosRun, check_counters, check_end
from faults import LIVE, Fault
from processes import Training, read_summary

from pronk.runs import json_lines
from pronk.runs.directory import RunDirectory

LEARNT = 9.0  # of 10, the return of an episode; 5 by chance
IN_FLIGHT = 2 * 2 * COLUMNS  # columns that one fault may lose: what all slots hold


@dataclass
class Result:
    """Of one fault."""

    kind: str
    transport: str
    outcome: str
    """`survived`, `ended with its cause`, or what is wrong."""
    seconds: float = 0.0
    """Until it trained as before."""
    lost: int = 0
    """Columns that were played but not learnt from, while their environment played on."""
    seed: int = 0
    part: str = ""
    """The part of the suite that it belongs to."""

    @property
    def is_good(self) -> bool:
        """Whether all held."""
        return self.outcome in ("survived", "ended with its cause")

    def line(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def guarded(kind: str, transport: str, trial: Callable[[], Result]) -> Result:
    """A trial whose failure is a result, too."""
    try:
        return trial()
    except Exception as error:
        traceback.print_exc()
        return Result(kind, transport, f"{type(error).__name__}: {str(error)[:300]}")


def live(transport: str, faults: Sequence[Fault], folder: Path, chance: random.Random) -> Iterator[Result]:
    """Injects faults one after another into one run, which has to have learnt its task at the end.

    If the run ends before, another one bears the rest of the faults.
    """
    left = list(faults)
    while left:
        number = len(faults) - len(left)
        results = list(one_run(transport, left, folder / f"run-{number}", chance))
        left = left[len(results) :]
        yield from results


def one_run(transport: str, faults: Sequence[Fault], path: Path, chance: random.Random) -> list[Result]:
    """Return the results of the faults that this run has borne, at least one."""
    learners = 2 if transport == "two learners" else 1
    results = []
    with ChaosRun(path, *RUN, *TRANSPORTS[transport], learners=learners) as run:
        run.wait_until_it_learns()
        for fault in faults:
            results.append(guarded(fault.kind, transport, partial(injected, run, fault, transport, chance)))
            if not run.running:
                return results
        try:
            run.wait_until(lambda: (run.metrics()[-1]["episode_return"] or 0.0) >= LEARNT, "that it learns", LIMIT)
            run.send(signal.SIGINT)
            assert run.wait(LIMIT) == 130
            run.assert_nothing_left()
            check_end(run.path, learners)
        except Exception as error:
            traceback.print_exc()
            results[-1].outcome = f"at the end of the run: {str(error)[:300]}"
    return results


def injected(run: ChaosRun, fault: Fault, transport: str, chance: random.Random) -> Result:
    """Inject one fault and wait until the run has recovered."""
    before, lost = run.resources(), run.lost()
    time.sleep(chance.uniform(0.0, 0.3))
    fault.inject(run, chance)
    seconds = run.check_recovery(before)
    gone = run.lost() - lost
    assert gone <= IN_FLIGHT, f"{gone} columns were lost"
    return Result(fault.kind, transport, "survived", seconds, gone)


def sample(count: int, chance: random.Random) -> dict[str, list[Fault]]:
    """So many faults, dealt to transports; every kind once before any comes again."""
    pairs: list[tuple[str, Fault]] = []
    while len(pairs) < count:
        deck = [(transport, fault) for fault in LIVE for transport in fault.where]
        chance.shuffle(deck)
        pairs += deck
    dealt: dict[str, list[Fault]] = {transport: [] for transport in TRANSPORTS}
    for transport, fault in pairs[:count]:
        dealt[transport].append(fault)
    return dealt


def kills(count: int, folder: Path, chance: random.Random) -> Iterator[Result]:
    """kill -9 of the learner at random instants of one run, with --resume after each."""
    path, command, seen = folder / "killed", RUN, -1
    for number in range(count):
        damage = chance.choice(list(DAMAGES)) if number % 3 == 2 else "nothing"
        kind = "kill -9 of the learner" + ("" if damage == "nothing" else f", then {damage}")

        def trial(damage: str = damage, kind: str = kind, number: int = number) -> Result:
            nonlocal command, seen
            with ChaosRun(path, *command) as run:
                if command is RUN:
                    checkpoints = RunDirectory(path).checkpoints
                    run.wait_until(lambda: len(checkpoints.saved()) > 1, "its first checkpoints", LIMIT)
                elif number % 4:  # else at any instant, also before its first update
                    run.wait_until(lambda: has_saved(path, seen), "a checkpoint after the last", LIMIT)
                time.sleep(chance.uniform(0.0, 3.0))
                began = time.monotonic()
                run.send(signal.SIGKILL)
                run.wait(LIMIT)
                run.assert_nothing_left()
            command = (str(path), "--resume")
            if damage != "nothing":
                DAMAGES[damage](path, chance)
            seen = RunDirectory(path).checkpoints.restore()[0]["metrics"]["env_steps"]
            check_counters(good_lines(path))
            return Result(kind, "shared memory", "survived", time.monotonic() - began)

        yield guarded(kind, "shared memory", trial)
    yield guarded("resumed to the end", "shared memory", lambda: to_the_end(path, seen))


def to_the_end(path: Path, seen: int) -> Result:
    """Resume until the task is learnt."""
    steps = seen + 200 * COLUMNS * STEPS
    with ChaosRun(path, str(path), "--resume", f"run.total_steps={steps}") as run:
        assert run.wait(2 * LIMIT) == 0, run.err
        run.assert_nothing_left()
    check_end(path, outcome="finished")
    check_counters(good_lines(path))
    assert read_summary(path)["episode_return"] >= LEARNT
    return Result("resumed to the end", "shared memory", "survived")


def good_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of the metrics, as Pronk reads them: without those that are damaged."""
    return list(json_lines.read_all(path / "metrics.jsonl"))


def has_saved(path: Path, steps: int) -> bool:
    """Whether the run has saved a checkpoint after so many steps, and its counters never fell on the way there."""
    check_counters(good_lines(path))
    return any(int(one.stem) > steps for one in RunDirectory(path).checkpoints.saved())


def truncate(path: Path, chance: random.Random) -> None:
    """Cut the newest checkpoint."""
    newest = RunDirectory(path).checkpoints.saved()[-1]
    os.truncate(newest, chance.randrange(newest.stat().st_size))


def corrupt(path: Path, chance: random.Random) -> None:
    """Change one bit of the newest checkpoint."""
    newest = RunDirectory(path).checkpoints.saved()[-1]
    content = bytearray(newest.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    newest.write_bytes(content)


def half_a_line(path: Path, chance: random.Random) -> None:
    """Metrics that end in the middle of a line, and a line that is none."""
    with open(path / "metrics.jsonl", "ab") as file:
        file.write(b'\xff\n{"wall_seconds": 1.5, "env_st')


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "the newest checkpoint truncated": truncate,
    "a bit of the newest checkpoint flipped": corrupt,
    "metrics half-written": half_a_line,
}


def interrupts(count: int, folder: Path, chance: random.Random) -> Iterator[Result]:
    """Ctrl-C at random instants from the prompt on."""
    for number in range(count):
        path = folder / f"interrupted-{number}"

        def trial(path: Path = path) -> Result:
            with ChaosRun(path, *RUN, fresh=True) as run:
                time.sleep(chance.uniform(0.0, 8.0))
                began = time.monotonic()
                run.send(signal.SIGINT, group=True)
                code = run.wait(LIMIT)
                seconds = time.monotonic() - began
                assert code in (130, -signal.SIGINT), f"exit code {code}"  # the latter: Python itself was not up yet
                assert "Traceback" not in run.err, run.err
                run.assert_nothing_left()
            if (path / "summary.json").exists():
                check_end(path)
            return Result("Ctrl-C", "shared memory", "survived", seconds)

        yield guarded("Ctrl-C", "shared memory", trial)


def misbehaving(name: str, folder: Path) -> Result:
    """A run whose environment misbehaves: it finishes, or ends with the true cause."""
    from misbehaving import ENVIRONMENTS

    kind, settings, cause = ENVIRONMENTS[name]

    def trial() -> Result:
        with Training(folder / name, f"misbehaving:{name}", *settings, "--quiet", OMP_NUM_THREADS="1") as run:
            began = time.monotonic()
            code = run.wait(LIMIT)
            seconds = time.monotonic() - began
            run.assert_nothing_left()
            if cause is None:
                assert code == 0, f"exit code {code}: {run.err}"
                return Result(kind, "shared memory", "survived", seconds)
            assert code in (1, 2), f"exit code {code}"
            assert cause in run.err, f"{cause!r} is not in {run.err!r}"
            return Result(kind, "shared memory", "ended with its cause", seconds)

    return guarded(kind, "shared memory", trial)
