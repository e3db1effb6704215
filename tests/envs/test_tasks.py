"""Several tasks in one vector: who plays what, that columns are not mixed up, and what cannot share weights."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pronk.actor import first_dealt
from pronk.config import Config, load_config, resolve
from pronk.config.resolved import check_resolved
from pronk.envs import make_env, probe_spec
from pronk.envs.base import games_of
from pronk.envs.tasks import FULL_ACTIONS, TaskVector, dealt_tasks, joined
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Step, UserError, leaves, map_tree, step_specs

WAGE = "task_envs:Wage"


def config_of(*tasks: Any, **changes: Any) -> Config:
    return Config().replace({"env.tasks": list(tasks)} | {key.replace("__", "."): v for key, v in changes.items()})


def wage(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"name": name, "id": WAGE, "kwargs": kwargs}


# ---- dealing


@pytest.mark.parametrize("envs", [1, 4, 16])
@pytest.mark.parametrize("tasks", [1, 2, 5, 7])
@pytest.mark.parametrize("learners", [1, 3])
def test_every_task_has_as_many_environments_as_any_other_or_one_more(envs: int, tasks: int, learners: int) -> None:
    env = config_of(*(f"Task-v{number}" for number in range(tasks))).env
    played: list[int] = []
    for rank in range(learners):
        for index in range(4):
            actors = SimpleNamespace(count=4, envs=envs)
            first = first_dealt(SimpleNamespace(rank=rank, actors=actors), index)  # type: ignore[arg-type]
            played += dealt_tasks(env, envs, first).tolist()
    counts = np.bincount(played, minlength=tasks)
    assert counts.max() - counts.min() <= 1
    assert played[:tasks] == list(range(min(tasks, len(played))))


def test_without_a_number_of_environments_all_tasks_have_the_same_in_each_actor() -> None:
    config = resolve(config_of(*(wage(str(number)) for number in range(5))))
    assert config.actors.envs % 5 == 0
    assert config.actors.envs % config.learner.batch_size == 0


def test_more_tasks_than_environments_are_refused() -> None:
    config = config_of(*map(wage, "abc"), actors__envs=1, actors__count=2, learner__batch_size=1)
    with pytest.raises(UserError, match=r"^env\.tasks: 3 tasks need as many environments, .* makes 2: raise one"):
        check_resolved(resolve(config))
    check_resolved(resolve(config.replace({"actors.count": 3})))


# ---- the columns


def copied(step: Step) -> Step:
    return Step(*(map_tree(np.copy, field) for field in step))


def test_every_column_plays_as_in_a_vector_of_its_task_alone() -> None:
    """Sync environments beside a vector class of the user's, which resets in another way."""
    config = config_of("scripted:Clock", "scripted:NextStepClock")
    seeds = [5, 6, 7, 8, 9]
    together = make_env(config, 5, first=3)
    assert together.task.tolist() == [1, 0, 1, 0, 1]
    assert together.spec.tasks == ("scripted:Clock", "scripted:NextStepClock")
    alone = {}
    for index, name in enumerate(together.spec.tasks):
        columns = np.flatnonzero(together.task == index)
        alone[index] = make_env(Config().replace({"env.id": name}), len(columns)), columns
    now = copied(together.reset(seeds))
    singles = {index: env.reset([seeds[column] for column in columns]) for index, (env, columns) in alone.items()}
    random = np.random.default_rng(1)
    for _ in range(20):
        for index, (_, columns) in alone.items():
            for (path, ours), (_, theirs) in zip(
                leaves(now._asdict()), leaves(copied(singles[index])._asdict()), strict=True
            ):
                np.testing.assert_array_equal(ours[columns], theirs, err_msg=path)
        action = random.integers(0, 3, 5)
        now = copied(together.step(action))
        singles = {index: env.step(action[columns]) for index, (env, columns) in alone.items()}
    for env in (together, *(env for env, _ in alone.values())):
        env.close()


def test_a_named_task_is_played_by_all_and_an_unknown_one_is_refused() -> None:
    config = config_of(wage("easy", pay=1.0), wage("hard", pay=3.0))
    env = make_env(config, 2, task="hard")
    env.reset([1, 2])
    assert env.step(np.zeros(2, np.int64)).reward.tolist() == [3.0, 3.0]
    assert (env.task.tolist(), env.spec.tasks) == ([1, 1], ("easy", "hard"))
    with pytest.raises(UserError, match=r"no task 'hart' \(did you mean 'hard'\?\); there are easy, hard"):
        make_env(config, 1, task="hart")
    with pytest.raises(UserError, match="one task"):
        make_env(Config().replace({"env.id": WAGE}), 1, task="hard")


def test_the_network_sees_the_task_only_if_asked() -> None:
    tasks = [wage("a"), wage("b"), wage("c")]
    assert probe_spec(config_of(*tasks)).observation == ArraySpec((2,), "float32")
    env = make_env(config_of(*tasks, env__task_observed=True), 4, first=1)
    assert env.spec.observation["task"] == ArraySpec((), "int64", (3,))
    for step in (env.reset([1, 2, 3, 4]), env.step(np.zeros(4, np.int64))):
        assert step.observation["task"].tolist() == [1, 2, 0, 1]
    assert env.encode(np.zeros((2, 2), np.float32))["task"].tolist() == [1, 1]


class Recorded:
    """A vector whose environments are processes: it writes down when it is started and waited for."""

    count, task = 1, np.zeros(1, np.int32)
    spec = EnvSpec(ArraySpec((), "float32"), ActionSpec((), (2,)))

    def __init__(self, name: str, diary: list[str]) -> None:
        self._name, self._diary = name, diary

    def start_step(self, action: Any) -> None:
        self._diary.append(f"start {self._name}")

    def finish_step(self) -> Step:
        self._diary.append(f"finish {self._name}")
        return Step(
            *(map_tree(lambda spec: np.zeros(spec.shape, spec.dtype), part) for part in step_specs(self.spec, 1))
        )


def test_processes_of_all_tasks_step_at_the_same_time() -> None:
    diary: list[str] = []
    vectors: Any = {index: Recorded(name, diary) for index, name in enumerate("ab")}
    TaskVector(vectors, np.arange(2, dtype=np.int32), config_of("a", "b").env).step(np.zeros(2, np.int64))
    assert diary == ["start a", "start b", "finish a", "finish b"]


# ---- what fits together


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (wage("b", size=5), r"observation is float32\[2\] and float32\[5\]; env\.wrappers=\[\{pad: \[5\]\}\] appends"),
        (wage("b", actions=7), r"the action is one of 2 choices and one of 7 choices; choose tasks with the same act"),
        ("Pendulum-v1", r"observation is float32\[2\] and float32\[3\]"),
        ("scripted:Clock", r"observation is float32\[2\] and missing; wrappers of a task"),
    ],
)
def test_what_cannot_share_weights_is_said_in_one_line(other: Any, problem: str) -> None:
    with pytest.raises(UserError, match=rf"^env\.tasks: a and [\w:-]+ cannot share one set of weights: {problem}"):
        probe_spec(config_of(wage("a"), other))


def test_padding_makes_them_fit() -> None:
    config = config_of(wage("a"), wage("b", size=5), wage("c", size=4), env__wrappers=[{"pad": [5]}])
    env = make_env(config, 3)
    env.reset([1, 2, 3])
    seen = env.step(np.zeros(3, np.int64)).observation
    np.testing.assert_array_equal(seen, [[1, 0.25, 0, 0, 0], [1, 0, 0, 0, 0.25], [1, 0, 0, 0.25, 0]])
    with pytest.raises(UserError, match=r"^env\.tasks: b: env\.wrappers: pad: observation has the shape \[5\], which"):
        probe_spec(config.replace({"env.wrappers": [{"pad": [4]}]}))
    with pytest.raises(UserError, match=r"pad: shape must be a list of sizes"):
        probe_spec(config.replace({"env.wrappers": [{"pad": 4}]}))


def test_a_mistake_in_a_task_names_it() -> None:
    with pytest.raises(UserError, match=r"^env\.tasks: b: env\.kwargs: task_envs:Wage takes no 'pai' \(did you mean"):
        probe_spec(config_of(wage("a"), wage("b", pai=1)))
    with pytest.raises(UserError, match=r"^env\.tasks: pettingzoo:scripted:Relay: teams of 3 agents; only"):
        probe_spec(config_of(wage("a"), "pettingzoo:scripted:Relay"))


def test_atari_games_have_all_actions_and_say_so() -> None:
    pytest.importorskip("ale_py")
    small = {"env.atari.size": 16, "env.id": "atari"}
    config = config_of({"game": "pong"}, "ALE/Breakout-v5", {"game": "freeway"}).replace(small)
    spec = probe_spec(config)
    assert spec.action == ActionSpec((), (18,))
    assert spec.tasks == ("pong", "ALE/Breakout-v5", "freeway")
    assert spec.notes[0] == FULL_ACTIONS
    assert "ALE/Breakout-v5: played as env.id=atari" in spec.notes[1]
    assert spec.frames_per_step == 4
    assert games_of(config.env) == ["pong", "breakout", "freeway"]


@pytest.mark.parametrize(("limits", "together"), [((20, 60), 60), ((20, 0), 0)])
def test_the_time_limit_is_that_of_the_longest_episodes(limits: tuple[int, int], together: int) -> None:
    spec = EnvSpec(ArraySpec((3,), "float32"), ActionSpec((), (2,)))
    tasks = {str(index): dataclasses.replace(spec, time_limit=limit) for index, limit in enumerate(limits)}
    assert joined(tasks).time_limit == together


# ---- settings


def test_a_task_has_the_settings_of_the_section_unless_it_has_its_own() -> None:
    tasks = ["A-v0", {"id": "B-v0", "kwargs": {"y": 2}, "wrappers": ["flatten"]}, {"game": "pong"}]
    env = config_of(*tasks).replace({"env.kwargs": {"x": 1}, "env.vectorization": "sync"}).env
    assert env.task_names == ("A-v0", "B-v0", "pong")
    assert [task.id for task in env.each_task] == ["A-v0", "B-v0", "atari"]
    assert [task.kwargs for task in env.each_task] == [{"x": 1}, {"x": 1, "y": 2}, {"x": 1}]
    assert [task.wrappers for task in env.each_task] == [[{"auto": None}], [{"flatten": None}], [{"auto": None}]]
    assert {task.vectorization for task in env.each_task} == {"sync"}
    assert env.label == "A-v0 and 2 more tasks"
    assert Config().env.each_task == [Config().env]


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ("[A-v0, A-v0]", "two tasks are called 'A-v0'; give them names"),
        ("A-v0", "env.tasks: 'A-v0' is not a list of tasks"),
        ("[3]", "env.tasks: 3 is not a task"),
        ("[{idd: A-v0}]", "env.tasks: a task has no key 'idd' (did you mean 'id'?)"),
        ("[{id: A-v0, kwargs: 3}]", "env.tasks must be a valid dictionary, got 3"),
    ],
)
def test_wrong_tasks_are_explained_in_one_line(tasks: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        load_config("CartPole-v1", [f"env.tasks={tasks}"])
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_task_is_observed_only_where_there_are_tasks() -> None:
    with pytest.raises(UserError, match=r"task_observed=true needs env\.tasks"):
        load_config("CartPole-v1", ["env.task_observed=true"])
