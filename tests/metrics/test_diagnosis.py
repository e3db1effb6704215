import json
import math
import re
from pathlib import Path

import pytest

from pronk.config import load_config, resolve
from pronk.metrics.diagnosis import WINDOW_SECONDS, Diagnosis
from pronk.sinks.notes import DiagnosisNotes
from pronk.types import ActionSpec

RECORDED = sorted((Path(__file__).parents[2] / "docs/results/atari").glob("*.jsonl"))
FOUR = ActionSpec((), (4,))
REAL = ActionSpec((2,))
HEALTHY = {
    "episode_return": 10.0,
    "episode_return_std": 3.0,
    "policy_loss": 0.01,
    "baseline_loss": 0.2,
    "entropy": 1.0,
    "entropy_cost": 0.01,
    "gradient_norm": 0.4,
    "learner_waits": 0.1,
}


def lines(count=40, seconds=1.0, start=0, **changes):
    """Metrics of a run that makes 10,000 steps a second; a change is a value, or a function of the second."""
    for index in range(start, start + count):
        now = (index + 1) * seconds
        counters = {
            "wall_seconds": now,
            "env_steps": int(1e4 * now),
            "updates": int(100 * now),
            "episodes": int(60 * now),
        }
        values = {name: value(now) if callable(value) else value for name, value in (HEALTHY | changes).items()}
        yield counters | values


def diagnose(many, action=FOUR, overrides=(), resumed=False):
    diagnosis = Diagnosis(resolve(load_config("CartPole-v1", list(overrides))), action, resumed)
    found = [note for line in many for note in diagnosis.look(line)]
    assert found == diagnosis.notes
    return found


SICK = {
    "value loss": {"baseline_loss": 3000.0, "gradient_norm": 270.0},
    "gradient norm": {"gradient_norm": 270.0},
    "no reward": {"episode_return": 0.0, "episode_return_std": 0.0},
    "entropy stuck": {"entropy": 0.999 * math.log(4)},
    "entropy collapsed": {"entropy": 0.001},
    "worse than random": {"episode_return": lambda now: 10.0 if now < 5 else 4.0},
    "learner idle": {"learner_waits": 0.9},
}


@pytest.mark.parametrize("passes", ["idle", "2"])
@pytest.mark.parametrize("illness", SICK)
def test_each_illness_is_found_once_and_names_a_setting(illness, passes):
    (note,) = diagnose(lines(100, **SICK[illness]), overrides=[f"learner.passes={passes}"])
    assert note.illness == illness
    assert "try " in note.message
    assert "\n" not in note.message
    suggested = re.findall(r"\w+\.\w+=[\w.-]*\w", note.message)
    assert suggested
    load_config("CartPole-v1", suggested)  # raises UserError for a key or value that does not exist


def test_a_healthy_run_is_left_alone():
    assert not diagnose(lines(200))
    improves = {"episode_return": lambda now: 10.0 + now, "entropy": lambda now: 1.38 / now}
    assert not diagnose(lines(200, **improves))


def test_nothing_is_said_before_a_window_has_passed():
    early = int(WINDOW_SECONDS) - 1
    for changes in SICK.values():
        assert not diagnose(lines(early, **changes))
        assert not diagnose(lines(9, seconds=5.0, **changes))


@pytest.mark.parametrize("illness", SICK)
def test_a_sign_that_comes_and_goes_is_no_illness(illness):
    def now_and_then(name, value):
        sick = value if callable(value) else lambda _: value
        return lambda now: HEALTHY[name] if now % 15 < 3 else sick(now)

    changes = {name: now_and_then(name, value) for name, value in SICK[illness].items()}
    assert not diagnose(lines(100, **changes))


def test_an_illness_that_has_passed_is_over_and_returns_only_for_good():
    diagnosis = Diagnosis(resolve(load_config("CartPole-v1")), FOUR)
    for line in lines(40, learner_waits=0.9):
        diagnosis.look(line)
    (note,) = diagnosis.notes
    for line in lines(10, start=40):
        diagnosis.look(line)
    assert not note.over  # a window is longer than this
    for line in lines(30, start=50):
        diagnosis.look(line)
    assert note.over
    for line in lines(5, start=80, learner_waits=0.9):
        diagnosis.look(line)
    assert note.over
    for line in lines(40, start=85, learner_waits=0.9):
        assert not diagnosis.look(line)
    assert not note.over


def test_the_suggested_reward_scale_brings_values_to_the_order_of_one():
    (note,) = diagnose(lines(**SICK["value loss"]), overrides=["network.popart=false"])
    assert note.message.endswith("network.popart=true, or loss.reward_scale=0.01")  # an error of 77
    (note,) = diagnose(lines(**SICK["value loss"]), overrides=["network.popart=false", "loss.reward_scale=0.1"])
    assert note.message.endswith("loss.reward_scale=0.001")


def test_the_suggestion_is_never_what_is_set_already():
    (note,) = diagnose(lines(**SICK["value loss"]), overrides=["optimiser.learning_rate=3e-3"])
    assert note.message.endswith("optimiser.learning_rate=0.001")  # values and observations have a scale of their own
    (note,) = diagnose(lines(**SICK["gradient norm"]), overrides=["network.normalise=false"])
    assert note.message.endswith("network.normalise=true")


def test_every_episode_alike_is_no_reward_too():
    (note,) = diagnose(lines(episode_return=-200.0, episode_return_std=0.0))
    assert "every episode returned -200" in note.message


def test_a_run_that_was_resumed_is_not_compared_with_its_first_episodes():
    perfect = {"episode_return": 500.0, "episode_return_std": 0.0, "entropy": 0.001}
    assert not diagnose(lines(**perfect), resumed=True)


def test_real_actions_have_no_largest_entropy():
    assert not diagnose(lines(entropy=50.0), REAL)
    (note,) = diagnose(lines(entropy=-8.0), REAL)
    assert note.illness == "entropy collapsed"


def test_a_loss_of_the_users_need_not_report_its_terms():
    plain = [{key: value for key, value in line.items() if not key.endswith("_loss")} for line in lines()]
    for line in plain:
        del line["entropy"]
    assert not diagnose(plain)


def test_a_return_without_a_spread_is_not_judged():
    """Those who played the episodes have left, and those who have come have not finished one: there is no spread."""
    gone = SICK["worse than random"] | {"episode_return_std": lambda now: 3.0 if now < 15 else None}
    assert not diagnose(lines(100, **gone))


@pytest.mark.parametrize("baseline", [-0.5, 0.0, math.inf, math.nan])
def test_a_value_loss_of_ones_own_may_have_any_sign(baseline):
    off = ["network.popart=false", "network.value=scalar"]
    (note,) = diagnose(lines(100, baseline_loss=baseline, policy_loss=1e9, gradient_norm=270.0), overrides=off)
    assert note.illness in ("gradient norm", "value loss")


def test_there_are_recorded_runs():
    assert len(RECORDED) >= 6


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_no_false_alarm_on_recorded_runs(file):
    recorded = [json.loads(line) for line in file.read_text().splitlines()]
    for line in recorded:  # not yet written when these were recorded
        line["episode_return_std"] = None if line["episode_return"] is None else 0.1 * abs(line["episode_return"])
        line["entropy_cost"] = 0.002
    sizes = ["actors.count=2", "actors.envs=16", "learner.batch_size=4"]  # as they were recorded
    assert not diagnose(recorded, ActionSpec((), (9 if "beamrider" in file.stem else 6,)), sizes)


def test_notes_are_written_for_the_dashboard_and_said(tmp_path):
    said, path = [], tmp_path / "notes.json"
    with DiagnosisNotes(path, Diagnosis(resolve(load_config("CartPole-v1")), FOUR), said.append) as sink:
        for line in lines(12):
            sink.write(line)
        assert not path.exists()
        for line in lines(60, start=12, learner_waits=0.9):
            sink.write(line)
    (note,) = json.loads(path.read_text())["notes"]
    assert said == [f"diagnosis: {note['message']}"]
    assert note["illness"] == "learner idle"
    assert note["over"] is False
    with DiagnosisNotes(path, Diagnosis(resolve(load_config("CartPole-v1")), FOUR, resumed=True), said.append) as sink:
        sink.write(next(lines()))
    assert json.loads(path.read_text()) == {"notes": []}
