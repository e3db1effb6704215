"""Successive halving, with speeds made by hand."""

from __future__ import annotations

import random

import pytest

from pronk.bench.halving import Halving, round_sizes


def race(speeds: dict[str, float], default: str, noise: float = 0.0, drift: float = 1.0, **options: int):
    """Run a race; `drift` is the factor by which the machine gets slower from one turn to the next."""
    halving, chance, order = Halving(list(speeds), default, **options), random.Random(1), []
    for turn in halving.turns():
        order.append((turn.round, turn.setting))
        halving.record(turn, speeds[turn.setting] * drift**turn.number * (1 + chance.uniform(-noise, noise)))
    return halving, order


LETTERS = {letter: 100.0 + 10 * place for place, letter in enumerate("abcdefghij")}  # j is the fastest


@pytest.mark.parametrize(
    ("settings", "sizes"), [(36, [36, 18, 9, 5, 4, 4, 4]), (10, [10, 5, 4, 4, 4]), (5, [5, 4, 4, 4]), (2, [2, 2, 2])]
)
def test_half_of_the_settings_leave_until_the_finalists_are_left(settings, sizes):
    assert round_sizes(settings, finalists=4, final_rounds=3) == sizes


def test_the_fastest_is_found_and_the_default_stays_to_the_end():
    halving, order = race(LETTERS, default="a")
    assert halving.finalists()[0] == "j"
    assert set(halving.finalists()) == set("ghija")
    assert [sum(number == index for number, _ in order) for index in range(1, halving.rounds + 1)] == [10, 6, 5, 5, 5]
    assert len(order) <= halving.turns_at_most
    assert halving.ratios("j") == pytest.approx([1.9] * 5)
    assert len(halving.ratios("b")) == 1


def test_rounds_go_forth_and_back():
    _, order = race(LETTERS, default="a")
    turns = {index: [setting for number, setting in order if number == index] for index in (3, 4, 5)}
    assert turns[3] == turns[4][::-1] == turns[5]


def test_noise_and_a_machine_that_gets_slower_do_not_hide_a_clear_winner():
    speeds = {f"slow {number}": 100.0 for number in range(30)} | {"fast": 150.0}
    halving, _ = race(speeds, default="slow 3", noise=0.1, drift=0.99)
    assert halving.finalists()[0] == "fast"


def test_a_default_that_is_the_fastest_has_nothing_faster_beside_it():
    halving, _ = race(LETTERS, default="j")
    assert halving.finalists()[0] == "j"
    assert all(ratio <= 1.0 for one in halving.finalists() for ratio in halving.ratios(one))


def test_a_setting_that_fails_is_not_measured_again():
    halving, order = Halving(list(LETTERS), "a"), []
    for turn in halving.turns():
        order.append(turn.setting)
        if turn.setting == "j":
            halving.drop("j")
        else:
            halving.record(turn, LETTERS[turn.setting])
    assert order.count("j") == 1
    assert halving.finalists()[0] == "i"


def test_what_was_measured_before_an_interrupt_counts():
    halving = Halving(list("abcdef"), "a")
    for turn in halving.turns():
        if turn.number == 4:
            break
        halving.record(turn, LETTERS[turn.setting])
    assert halving.finalists() == ["c", "b", "a"]


def test_an_interrupt_before_anything_was_measured_leaves_nothing():
    assert Halving(["a", "b"], "a").finalists() == []
