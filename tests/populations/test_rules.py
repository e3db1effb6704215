"""The rules of population-based training, against a slow oracle in the paper's words."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from pronk.populations.rules import Child, Parent, Rules, Settings, draw, exploit, moved, next_generation, normalised

PRIORS: dict[str, dict[str, Any]] = {
    "optimiser.learning_rate": {"low": 5e-6, "high": 5e-3, "log": True},
    "loss.entropy_cost": {"low": 0.0, "high": 0.01},
    "optimiser.epsilon": {"start": [1e-1, 1e-3, 1e-5, 1e-7]},
    "learner.passes": {"low": 1, "high": 4},
    "loss.name": {"choices": ["impala", "appo", "third"]},
}


def oracle(parents: list[Parent], rules: Rules, chances: list[np.random.Generator], burning_in: bool) -> list[Child]:
    """One member after the other, one case after the other."""
    children = []
    for own in range(len(parents)):
        chance, me, copied = chances[own], parents[own], None
        candidates = []
        if me.failed:
            candidates = [i for i in range(len(parents)) if i != own and not parents[i].failed]
        elif not burning_in and rules.partner == "better":
            for i in range(len(parents)):
                other = parents[i]
                if i == own or other.failed or other.fitness is None or me.fitness is None:
                    continue
                if other.fitness > me.fitness + rules.margin:
                    candidates.append(i)
        elif not burning_in:
            candidates = [i for i in range(len(parents)) if i != own and not parents[i].failed]
        if candidates:
            copied = candidates[chance.integers(len(candidates))]
            other = parents[copied]
            known = other.fitness is not None and me.fitness is not None
            is_better = known and (other.fitness or 0.0) > (me.fitness or 0.0) + rules.margin
            if not me.failed and not is_better:
                copied = None
        settings = dict(me.settings if copied is None else parents[copied].settings)
        for key in PRIORS if not burning_in else ():
            dice, coin = chance.random(), chance.random()
            if dice >= rules.probability:
                continue
            value = settings[key]
            if key == "loss.name":
                names = PRIORS[key]["choices"]
                place = names.index(value) + (1 if coin < 0.5 else -1)
                settings[key] = names[0 if place < 0 else 2 if place > 2 else place]
            elif key == "learner.passes":
                up, down = max(round(value * 1.2), value + 1), min(round(value / 1.2), value - 1)
                changed = up if coin < 0.5 else down
                settings[key] = changed if changed >= 1 else value  # 0 passes are not valid
            else:
                settings[key] = float(f"{value * 1.2 if coin < 0.5 else value / 1.2:.6g}")
        children.append(Child(settings, copied))
    return children


def is_valid(settings: Settings) -> bool:
    return settings["learner.passes"] >= 1


@pytest.mark.parametrize("partner", ["better", "any"])
@pytest.mark.parametrize("burning_in", [False, True])
def test_the_next_generation_is_the_oracles(partner: Any, burning_in: bool) -> None:
    rules = Rules(PRIORS, margin=1 / 16, partner=partner)
    copies = 0
    for seed in range(300):
        chance = np.random.default_rng(seed)
        parents = []
        for _ in range(int(chance.integers(2, 7))):
            settings = {key: draw(prior, chance) for key, prior in PRIORS.items()}
            fitness = (
                None if chance.random() < 0.1 else float(chance.integers(33) / 32)
            )  # some differ by just the margin
            parents.append(Parent(settings, fitness, failed=chance.random() < 0.1))
        chances = [[np.random.default_rng([seed, member]) for member in range(len(parents))] for _ in range(2)]
        expected = oracle(parents, rules, chances[0], burning_in)
        assert next_generation(parents, rules, chances[1], burning_in=burning_in, is_valid=is_valid) == expected
        copies += sum(child.parent is not None for child in expected)
    assert copies > 50


def test_nothing_changes_in_the_burn_in() -> None:
    settings = {key: draw(prior, np.random.default_rng(1)) for key, prior in PRIORS.items()}
    parents = [Parent(settings, 0.1 * number) for number in range(4)]
    chances = [np.random.default_rng(i) for i in range(4)]
    found = next_generation(parents, Rules(PRIORS), chances, burning_in=True, is_valid=is_valid)
    assert found == [Child(parent.settings) for parent in parents]


def test_a_member_must_be_better_by_more_than_the_margin() -> None:
    rules, chance = Rules({}, margin=0.25), np.random.default_rng(1)
    assert exploit(0, [Parent({}, 0.5), Parent({}, 0.75)], rules, chance) is None
    assert exploit(0, [Parent({}, 0.5), Parent({}, 0.76)], rules, chance) == 1
    assert exploit(1, [Parent({}, 0.5), Parent({}, 0.76)], rules, chance) is None


def test_each_better_member_is_copied_as_often_and_each_setting_changes_with_a_third() -> None:
    rules = Rules({"loss.entropy_cost": PRIORS["loss.entropy_cost"]})
    parents = [Parent({"loss.entropy_cost": 1.0}, fitness) for fitness in (0.0, 0.5, 1.0, 0.04)]
    copied: Counter[int | None] = Counter()
    values: Counter[float] = Counter()
    for seed in range(3000):
        chances = [np.random.default_rng([seed, member]) for member in range(4)]
        first = next_generation(parents, rules, chances, burning_in=False, is_valid=lambda _: True)[0]
        copied[first.parent] += 1
        values[first.settings["loss.entropy_cost"]] += 1
    assert copied.keys() == {1, 2}
    assert copied[1] == pytest.approx(1500, abs=120)
    assert values.keys() == {1.0, 1.2, 0.833333}
    assert values[1.2] == pytest.approx(495, abs=75)
    assert values[0.833333] == pytest.approx(495, abs=75)


def test_first_values_follow_the_priors() -> None:
    chance = np.random.default_rng(1)
    logs = [math.log10(draw(PRIORS["optimiser.learning_rate"], chance)) for _ in range(2000)]
    assert math.log10(5e-6) <= min(logs)
    assert max(logs) <= math.log10(5e-3)
    assert np.mean(logs) == pytest.approx((math.log10(5e-6) + math.log10(5e-3)) / 2, abs=0.06)
    assert np.mean([draw(PRIORS["loss.entropy_cost"], chance) for _ in range(2000)]) == pytest.approx(0.005, abs=3e-4)
    assert {draw(PRIORS["learner.passes"], chance) for _ in range(200)} == {1, 2, 3, 4}
    assert {draw(PRIORS["optimiser.epsilon"], chance) for _ in range(200)} == {1e-1, 1e-3, 1e-5, 1e-7}


def test_a_move_up_and_one_down_lead_back() -> None:
    for key, value in (("optimiser.learning_rate", 3e-4), ("learner.passes", 2), ("loss.name", "appo")):
        there = moved(value, PRIORS[key], 1.2, up=True)
        assert there != value
        assert moved(there, PRIORS[key], 1.2, up=False) == value


def test_fitness_is_the_place_on_the_scale() -> None:
    assert normalised([0.0, 250.0, None, 600.0], (0.0, 500.0)) == [0.0, 0.5, None, 1.2]
    assert normalised([3.0, 3.0], (3.0, 3.0)) == [0.0, 0.0]
