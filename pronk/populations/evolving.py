"""A population from its file to its result: trains every member for a round, compares, copies, and so on.

runs/NAME-DATE-TIME/
    population.yaml             the file with all settings
    population.json             rounds, lineage, settings, states: see history.py
    MEMBER/                     an ordinary run directory for each member
    logs/MEMBER.log             what it printed
    copies/MEMBER.pt            checkpoints that others take over before the next round
    plot.png                    returns, copies and settings, at the end

A member is a `pronk train` that pauses at the end of a round (run.pause_steps) and is resumed with other settings, so
training knows nothing of populations. Between two rounds nothing runs, and every step can be repeated:

    1  link the checkpoints that will be copied into copies/      (the originals may be replaced in step 3)
    2  write the next round into population.json                  (from here on its decisions are final)
    3  give copied weights to those that take them over, then set `ready`
    4  train

Killed in 1, the round is decided again, from the same numbers; in 3, all copies are made again, from copies/; in 4,
every member goes on from its own checkpoint.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pronk.cluster.cluster_run import marked
from pronk.evaluation.atari_scores import references
from pronk.populations.history import FILE, History, Round, Turn
from pronk.populations.plan import Population, parse_population
from pronk.populations.rules import Parent, Settings, next_generation, normalised
from pronk.processes.interrupts import Interrupted, Interrupts
from pronk.runs.atomic import replace_with_copy
from pronk.runs.directory import RunDirectory
from pronk.runs.reading import Run, number
from pronk.runs.trust import remember
from pronk.sweeps.capacity import Capacity, capacity_for
from pronk.sweeps.display import first_line
from pronk.sweeps.expand import SEED, Member, as_overrides
from pronk.sweeps.plan_folder import PlanFolder, without_cluster
from pronk.sweeps.report import announce_missing_plot, draw
from pronk.sweeps.running import Record, SweepRun
from pronk.sweeps.sweeping import Display
from pronk.types import Failure, UserError

EPISODES = 2  # that an environment should be able to play in a round
MAY_CHANGE = ("run.total_steps", "run.stop_return")  # when a population is continued


@dataclass(frozen=True)
class Outcome:
    """How a population ended."""

    folder: Path
    history: History
    interrupted: bool
    plot: Path | None

    @property
    def best(self) -> Path | None:
        """The run directory of the best member; None if no episode has ended."""
        found = self.history.result()
        return self.folder / found["member"] if found else None


def run_population(
    population: Population,
    folder: Path | None,
    *,
    resume: bool,
    display: Callable[[int, int], Display],
    say: Callable[[str], None],
) -> Outcome:
    """Train a population until its members have made run.total_steps, or one has reached run.stop_return.

    Args:
        population: what to train.
        folder: its directory; None makes a new one under runs/.
        resume: continue the population in `folder`.
        display: makes the display, from how many members train at a time and how many there are.
        say: gets warnings.

    Raises:
        UserError: a mistake in the file, or in where it is to be written.
        Failure: every member failed in the same round.
    """
    announce_missing_plot(say)
    size = population.options.size
    at_a_time = None if population.options.at_a_time == "auto" else population.options.at_a_time
    first = [population.config_of(settings) for settings in population.first_settings()]
    with contextlib.ExitStack() as stack:
        capacity = stack.enter_context(capacity_for(first, size, at_a_time))
        folder = POPULATIONS.open(population, folder, resume)
        remember(population.config, say)
        stack.enter_context(RunDirectory(folder).locked())
        marker = stack.enter_context(marked(folder))
        shown = stack.enter_context(display(capacity.at_a_time, size))
        evolution = Evolution(population, open_history(population, folder), capacity, marker, shown, say)
        completed = evolution.run()
    return Outcome(folder, evolution.history, not completed, draw(folder) if completed else None)


class Evolution:
    """The rounds of a population."""

    def __init__(
        self,
        population: Population,
        history: History,
        capacity: Capacity,
        marker: Path,
        display: Display,
        say: Callable[[str], None],
    ) -> None:
        self.history = history
        self._population, self._capacity, self._marker = population, capacity, marker
        self._display, self._say = display, say
        self._folder = history.folder
        self._warned = False
        self._steps, self._ready_steps = population.total_steps, population.ready_steps

    def run(self) -> bool:
        """Train the rounds that are left. Return False if the user interrupted it."""
        with Interrupts() as interrupts:
            try:
                while (current := self._current()) is not None:
                    interrupts.check()
                    self._copy_weights(current)
                    if not self._train(current):
                        self.history.write("interrupted")
                        return False
                    self._report_failures(current)
                    self._warn_of_short_rounds(current)
            except Interrupted:
                self.history.write("interrupted")
                return False
        self.history.write("finished")
        return True

    def _current(self) -> Round | None:
        """Return the round to train; None if there is nothing left to do."""
        rounds = self.history.rounds
        if not rounds:
            self._add([Turn(*pair) for pair in self._first_turns()])
        elif rounds[-1].is_over:
            if rounds[-1].until >= self._steps or any(turn.state == "solved" for turn in rounds[-1].members):
                return None
            self._add(self._next_turns(rounds[-1]))
        return rounds[-1]

    def _add(self, turns: list[Turn]) -> None:
        rounds = self.history.rounds
        before = rounds[-1].until if rounds else 0
        rounds.append(Round(min(self._steps, before + self._ready_steps), turns))
        self.history.write("running")

    def _first_turns(self) -> list[tuple[str, Settings]]:
        return list(zip(self._population.names, self._population.first_settings(), strict=True))

    def _next_turns(self, last: Round) -> list[Turn]:
        """Decide who copies whom and which settings change, and keep the checkpoints that are copied."""
        population, number = self._population, len(self.history.rounds)
        fitness = normalised([turn.value for turn in last.members], self._scale())
        children = next_generation(
            [
                Parent(turn.settings, value, turn.state == "failed")
                for turn, value in zip(last.members, fitness, strict=True)
            ],
            population.rules,
            [population.chance_of(number, member) for member in range(len(last.members))],
            burning_in=last.until < population.burn_in_steps,
            is_valid=population.is_valid,
        )
        names = population.names
        turns = [
            Turn(name, child.settings, None if child.parent is None else names[child.parent])
            for name, child in zip(names, children, strict=True)
        ]
        self._keep_checkpoints({turn.parent for turn in turns if turn.parent is not None})
        return turns

    def _scale(self) -> tuple[float, float]:
        """Return the values that count as fitness 0 and 1."""
        options, env = self._population.options, self._population.config.env
        if options.scale != "auto":
            return options.scale[0], options.scale[1]
        if self._population.metric == "human_normalised_capped":
            return 0.0, 1.0
        known = references().get(env.game or "") if env.id == "atari" else None
        if known is not None:
            return known.random, known.human
        seen = self.history.values() or [0.0]
        return min(seen), max(seen)

    def _keep_checkpoints(self, names: set[str]) -> None:
        copies = self._folder / "copies"
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir()
        for name in names:
            replace_with_copy(self._directory(name).checkpoints.newest(), copies / f"{name}.pt")

    def _copy_weights(self, current: Round) -> None:
        """Give every member the weights that it begins the round with."""
        if current.ready:
            return
        for turn in current.members:
            if turn.parent is not None:
                self._take_over(self._directory(turn.name), turn.parent)
        current.ready = True
        self.history.write("running")
        shutil.rmtree(self._folder / "copies", ignore_errors=True)

    def _take_over(self, run: RunDirectory, parent: str) -> None:
        run.make_folders()
        if not run.config.exists():  # the member failed before it had written its configuration
            replace_with_copy(self._directory(parent).config, run.config)
        run.checkpoints.take_over(self._folder / "copies" / f"{parent}.pt")

    def _train(self, current: Round) -> bool:
        """Train all members of a round. Return False if the user interrupted it."""
        metric = self._population.metric
        records = [self._record(current, member) for member in range(len(current.members))]
        self._display.title = f"{self._population.name}, {self._progress(current)}"

        def changed(record: Record | None) -> None:
            for turn, one in zip(current.members, records, strict=True):
                note(turn, one)
            with contextlib.suppress(OSError):  # a full disk must not end the members
                self.history.write("running")
            self._display.changed(record, records)

        run = SweepRun(
            self._folder,
            records,
            self._capacity,
            metric,
            marker=self._marker,
            proposals=None,
            show=self._display.show,
            changed=changed,
            say=self._say,
        )
        completed = run.run()
        changed(None)
        return completed and current.is_over

    def _progress(self, current: Round) -> str:
        left = -(-(self._steps - current.until) // self._ready_steps)
        done = len(self.history.rounds)
        return f"round {done} of {done + left}"

    def _record(self, current: Round, number: int) -> Record:
        """Return the record of a member: to be run, or complete if it has made its steps already."""
        turn, before = current.members[number], self.history.rounds[:-1]
        pause = {"run.pause_steps": current.until if current.until < self._steps else None}
        changes = {**turn.settings, **pause, "run.total_steps": self._steps, SEED: self._population.seed_of(number)}
        changes["run.stop_return"] = self._population.config.run.stop_return
        member = Member(
            turn.name,
            turn.settings,
            changes[SEED],
            self._population.config_of(changes),
            resumes_with=tuple(as_overrides(changes)),
            needs_shared_disk=True,
        )
        record = Record(member, self._folder / turn.name, from_steps=before[-1].until if before else 0)
        record.look(self._population.metric)
        outcome = Run(record.path).summary.get("outcome")
        if outcome == "solved" or (outcome == "finished" and record.steps >= current.until):
            record.state, record.lasted = outcome, turn.lasted
        return record

    def _report_failures(self, current: Round) -> None:
        """Report members that failed; in the next round they copy others. Raises `Failure` if all have failed."""
        failed = [turn for turn in current.members if turn.state == "failed"]
        if len(failed) == len(current.members):
            self.history.write("failed")
            raise Failure(f"every member failed; {failed[0].name}: {failed[0].cause}")
        for turn in failed:
            cause = first_line(turn.cause or "unknown cause")
            self._say(f"{turn.name} failed: {cause} (log: {self._folder}/logs/{turn.name}.log)")

    def _warn_of_short_rounds(self, current: Round) -> None:
        """Warn once if rounds are so short that mostly short episodes end in them, which biases the returns."""
        if self._warned:
            return
        for turn in current.members:
            run = Run(self._folder / turn.name)
            actors, length = run.config.get("actors") or {}, number(run.last.get("episode_length"))
            envs = number(actors.get("count")) * number(actors.get("envs"))
            if envs * length * EPISODES > self._ready_steps:
                self._warned = True
                return self._say(
                    f"rounds are short: each of {envs} environments plays {self._ready_steps / envs:.0f} steps in a "
                    f"round, and an episode takes {length:.0f}, so that long ones are lost and returns are biased: "
                    f"raise population.ready_steps or lower actors.envs"
                )

    def _directory(self, name: str) -> RunDirectory:
        return RunDirectory(self._folder / name)


def note(turn: Turn, record: Record) -> None:
    """Copy the state of a member's record into its turn."""
    turn.state, turn.value, turn.cause = record.state, record.value, record.cause
    turn.env_steps, turn.wall_seconds, turn.lasted = record.steps, record.seconds, record.lasted


# ---- the directory


def open_history(population: Population, folder: Path) -> History:
    """Return the rounds so far."""
    if (folder / FILE).is_file():
        return History.read(folder)
    options = population.options
    facts = {"name": population.name, "metric": population.metric, "size": options.size, "priors": options.priors}
    return History(folder, facts)


def comparable(population: Population) -> Settings:
    """Return what may not change when a population is continued."""
    options: dict[str, Any] = population.options.model_dump(exclude={"at_a_time"})
    kept = {key: value for key, value in without_cluster(population.fixed).items() if key not in MAY_CHANGE}
    return {"base": population.base, **kept, **{f"population.{key}": value for key, value in options.items()}}


POPULATIONS = PlanFolder("population", parse_population, comparable)


def with_workers(population: Population, workers: str) -> Population:
    """Return the population with N members at a time, or on a Ray cluster."""
    if workers == "ray":
        return Population(
            population.name, population.base, population.fixed | {"cluster.name": "ray"}, population.options
        )
    if not workers.isdecimal() or int(workers) < 1:
        raise UserError(f"workers must be how many members train at a time, or ray; got {workers!r}")
    options = population.options.model_copy(update={"at_a_time": int(workers)})
    return Population(population.name, population.base, population.fixed, options)
