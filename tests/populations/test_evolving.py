"""Rounds of a population whose members only pretend to train: lineage, failures, and a kill at every point."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pronk.cluster.base import Placement
from pronk.config import plain_yaml
from pronk.plotting import plot
from pronk.plotting.lineage import ancestry_of
from pronk.populations import evolving, history
from pronk.populations.evolving import Outcome, run_population
from pronk.populations.plan import Population, parse_population
from pronk.processes.messages import Exited, Failed, Message, RunCommand, RunnerReady, Started
from pronk.runs import checkpoint
from pronk.runs.directory import RunDirectory
from pronk.sweeps import running
from pronk.sweeps.capacity import Capacity
from pronk.sweeps.display import Nothing
from pronk.types import Failure, UserError

RATE = "optimiser.learning_rate"
TREE: dict[str, Any] = {
    "base": "catch",
    "run": {"total_steps": 400, "stop_return": None},
    "population": {
        "size": 3,
        "ready_steps": 100,
        "burn_in_steps": 100,
        "margin": 0.0,
        "scale": [0, 1],
        "priors": {RATE: {"low": 1e-4, "high": 1e-2, "log": True}},
    },
}


class Killed(BaseException):
    """What a kill -9 looks like in a test: nothing after it happens."""


class Training:
    """A process that trains at once: the weight grows by learning rate x steps, and the return is the weight."""

    def __init__(self, before: Callable[[str], None]) -> None:
        self._before = before
        self._messages: list[Message] = [RunnerReady(1, 1)]

    def run(self, command: RunCommand) -> None:
        path = Path(str(command.run))
        self._before("train")
        code = train(path, settings_of(command))
        failed = [Failed("the loss is not finite")] if code else []
        self._messages = [Started(True), *failed, Exited(code)]

    def receive(self) -> list[Message]:
        messages, self._messages = self._messages, []
        return messages

    def stop(self) -> None: ...

    def close(self) -> None: ...


def settings_of(command: RunCommand) -> dict[str, Any]:
    """Return what the command trains with: the file, or what is changed when it is resumed."""
    run = RunDirectory(Path(str(command.run)))
    tree = plain_yaml.parse(command.files["config.yaml"])
    flat = {f"{section}.{key}": value for section in ("run", "optimiser") for key, value in tree[section].items()}
    if not run.checkpoints.saved():
        return flat
    assert command.resume_arguments is not None
    assert command.resume_arguments[:3] == ["train", str(run.path), "--resume"]
    given = dict(argument.split("=", 1) for argument in command.resume_arguments[3:])
    changed = {key: plain_yaml.parse(value) for key, value in given.items()}
    assert changed.items() <= flat.items()  # both say the same
    return changed


def train(path: Path, settings: dict[str, Any]) -> int:
    run = RunDirectory(path)
    run.make_folders()
    run.config.write_text("actors: {count: 1, envs: 16}")
    until, rate, seed = (settings[key] for key in ("run.pause_steps", RATE, "run.seed"))
    until = until or settings["run.total_steps"]
    state: dict[str, Any] = {
        "learner": {"network": torch.zeros(()), "version": 0, "random": seed, "random_cuda": []},
        "metrics": {"env_steps": 0, "returns": 0.0, "wall_seconds": 0.0},
        "best": (False, 0.0),
        "config": {},
    }
    if run.checkpoints.saved():
        state, _ = run.checkpoints.restore()
    if (path.parent / f"breaks-{path.name}").exists():
        (path.parent / f"breaks-{path.name}").unlink()
        return 1
    learner, metrics = state["learner"], state["metrics"]
    learner["network"] = learner["network"] + rate * (until - metrics["env_steps"])
    learner["version"] += until - metrics["env_steps"]
    value = float(learner["network"])
    metrics |= {"env_steps": until, "returns": value}
    run.checkpoints.save(state, keep=1)
    line = {
        "updates": learner["version"],
        "env_steps": until,
        "wall_seconds": 1.0,
        "episode_return": value,
        "episode_length": 2,
    }
    with open(run.metrics, "a") as file:
        file.write(json.dumps(line) + "\n")
    run.write_summary({"outcome": "finished", **line})
    return 0


class Population3:
    """Trains the population of TREE in a folder. `killed_at`: the effect before which it is killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.folder, self.said = tmp_path / "population", list[str]()
        self.effects, self.killed_at = 0, -1
        monkeypatch.setattr(running, "POLL_SECONDS", 0.0)
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # most of the time
        monkeypatch.setattr(evolving, "draw", lambda folder: None)
        monkeypatch.setattr(evolving, "capacity_for", self.capacity_for)
        for module, name in (
            (history, "write_atomically"),
            (evolving, "replace_with_copy"),
            (checkpoint, "save_tensors"),
        ):
            self.count_effects(monkeypatch, module, name)

    def count_effects(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        function = getattr(module, name)

        def counted(*arguments: Any) -> Any:
            self.before(name)
            return function(*arguments)

        monkeypatch.setattr(module, name, counted)

    def before(self, what: str) -> None:
        self.effects += 1
        if self.effects == self.killed_at:
            raise Killed(what)

    @contextlib.contextmanager
    def capacity_for(self, *_: Any) -> Iterator[Capacity]:
        yield Capacity(Placement("here", lambda: Training(self.before)), 2, None)

    def train(self, plan: Population | None = None, folder: Path | None = None) -> Outcome:
        folder = folder or self.folder
        return run_population(
            plan or parse_population(TREE, "mine", "mine.yaml"),
            folder,
            resume=(folder / "population.yaml").exists(),
            display=lambda at_a_time, expected: Nothing(),
            say=self.said.append,
        )


@pytest.fixture
def population(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Population3:
    return Population3(monkeypatch, tmp_path)


def told(outcome: Outcome) -> list[Any]:
    """Return all that must not depend on kills."""
    return [
        (one.until, [(turn.name, turn.settings, turn.parent, turn.state, turn.value) for turn in one.members])
        for one in outcome.history.rounds
    ]


def test_the_worse_copy_weights_settings_and_returns_and_keep_their_own_counters(population: Population3) -> None:
    outcome = population.train()
    assert not outcome.interrupted
    rounds = outcome.history.rounds
    assert [one.until for one in rounds] == [100, 200, 300, 400]
    first = sorted(rounds[0].members, key=lambda turn: turn.value or 0.0)
    assert [turn.value for turn in first] == pytest.approx([100 * turn.settings[RATE] for turn in first])
    by_name = [{turn.name: turn for turn in one.members} for one in rounds]
    assert by_name[1][first[0].name].parent in (first[1].name, first[2].name)  # the worst copies a better one
    assert by_name[1][first[2].name].parent is None  # and the best none
    for before, after in itertools.pairwise(by_name):
        for turn in after.values():
            origin = before[turn.parent or turn.name]
            assert origin.value is not None
            assert turn.value == pytest.approx(origin.value + 100 * turn.settings[RATE], rel=1e-5)
            ratio = turn.settings[RATE] / origin.settings[RATE]
            assert any(ratio == pytest.approx(factor, rel=1e-4) for factor in (1, 1.2, 1 / 1.2))
    best = max(rounds[-1].members, key=lambda turn: turn.value or 0.0)
    assert outcome.best == outcome.folder / best.name
    for number, turn in enumerate(rounds[-1].members):
        state, _ = RunDirectory(outcome.folder / turn.name).checkpoints.restore()
        assert state["learner"]["random"] == 1 + number  # its own seed's
        assert state["learner"]["version"] == state["metrics"]["env_steps"] == 400
    assert json.loads((outcome.folder / "population.json").read_text())["state"] == "finished"
    assert not (outcome.folder / "copies").exists()


def test_killed_before_any_effect_it_goes_on_as_if_nothing_had_happened(population: Population3) -> None:
    """From the end of the first round to the middle of the third: all kinds of effects, several times each."""
    whole = told(population.train())
    effects = population.effects
    assert effects > 50
    for number in range(effects // 5, effects * 3 // 5, 2):
        folder = population.folder.with_name(f"killed-{number}")
        population.effects, population.killed_at = 0, number
        with pytest.raises(Killed):
            population.train(folder=folder)
        population.killed_at = -1
        assert told(population.train(folder=folder)) == whole, f"killed before effect {number}"


def test_a_member_that_fails_becomes_a_copy_even_in_the_burn_in(
    population: Population3, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = evolving.PlanFolder.open

    def open_and_break(*arguments: Any) -> Path:
        folder = opened(*arguments)
        (folder / "breaks-member-01").touch()
        return folder

    monkeypatch.setattr(evolving.PlanFolder, "open", open_and_break)
    outcome = population.train()
    rounds = outcome.history.rounds
    assert [turn.state for turn in rounds[0].members] == ["finished", "failed", "finished"]
    assert "the loss is not finite" in (rounds[0].members[1].cause or "")
    parent = rounds[1].members[1].parent
    assert parent in ("member-00", "member-02")
    assert rounds[1].is_over
    assert "member-01 failed: the loss is not finite" in population.said[0]
    assert rounds[-1].members[1].env_steps == 400


def test_if_all_members_fail_so_does_the_population(population: Population3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "train", lambda path, settings: 1)
    with pytest.raises(Failure, match="every member failed; member-00: the loss is not finite"):
        population.train()
    assert json.loads((population.folder / "population.json").read_text())["state"] == "failed"


def test_a_longer_run_goes_on_and_another_population_is_refused(population: Population3) -> None:
    population.train()
    longer = parse_population({**TREE, "run": {"total_steps": 600, "stop_return": None}}, "mine", "mine.yaml")
    assert [one.until for one in population.train(longer).history.rounds] == [100, 200, 300, 400, 500, 600]
    other = parse_population({**TREE, "env.kwargs": {"rows": 7}}, "mine", "mine.yaml")
    with pytest.raises(UserError, match=r"env\.kwargs\.rows is 7 now and was None when the population was started"):
        population.train(other)


def test_rounds_too_short_for_two_episodes_are_reported_once(population: Population3) -> None:
    population.train()
    assert population.said == []
    short = {**TREE, "population": {**TREE["population"], "ready_steps": 50}}
    population.train(parse_population(short, "mine", "mine.yaml"), population.folder.with_name("short"))
    assert [line.partition(":")[0] for line in population.said] == ["rounds are short"]
    assert "each of 16 environments plays 3 steps in a round, and an episode takes 2" in population.said[0]


def test_the_picture_shows_the_ancestry_of_the_best(population: Population3, tmp_path: Path) -> None:
    outcome = population.train()
    content = json.loads((outcome.folder / "population.json").read_text())
    ancestry = ancestry_of(content)
    assert outcome.best is not None
    assert ancestry[-1] == (outcome.best.name, 300, 400)
    assert [segment.start for segment in ancestry] == [0, 100, 200, 300]
    for before, after, one in zip(ancestry, ancestry[1:], content["rounds"][1:], strict=False):
        turn = next(turn for turn in one["members"] if turn["name"] == after.member)
        assert before.member == (turn["parent"] or turn["name"])
    drawn = plot(outcome.folder, tmp_path / "lineage.svg")
    assert drawn.path.stat().st_size > 10_000
    with pytest.raises(UserError, match=r"must end in \.png, \.svg, \.pdf"):
        plot(outcome.folder, tmp_path / "lineage.html")
