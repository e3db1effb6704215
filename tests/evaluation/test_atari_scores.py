import re

import pytest

from pronk.evaluation.atari_scores import DATA, human_normalised, references

# What the paper's Atari tables call by other names than the ROMs: a slip in these would drop a game silently.
SPELLED_AS_ROMS = {"jamesbond", "riverraid", "montezuma_revenge", "kung_fu_master", "up_n_down", "yars_revenge", "hero"}


def test_there_are_57_games_and_all_can_be_played():
    roms = pytest.importorskip("ale_py.roms")
    assert len(references()) == 57
    assert references().keys() <= set(roms.get_all_rom_ids())
    assert references().keys() >= SPELLED_AS_ROMS


def test_the_file_has_each_game_once_in_order_and_names_its_source():
    lines = DATA.read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert "1511.06581" in "".join(comments)
    header, *rows = lines[len(comments) :]
    assert header == "game,random,human"
    assert all(re.fullmatch(r"[a-z_]+,-?\d+\.\d,-?\d+\.\d", row) for row in rows)
    games = [row.partition(",")[0] for row in rows]
    assert games == sorted(set(games))


def test_a_human_is_better_than_chance_in_every_game():
    assert [game for game, reference in references().items() if reference.human <= reference.random] == []


@pytest.mark.parametrize(
    ("game", "random", "human"),
    [
        ("breakout", 1.7, 30.5),
        ("pong", -20.7, 14.6),
        ("beam_rider", 363.9, 16926.5),
        ("qbert", 163.9, 13455.0),
        ("seaquest", 68.4, 42054.7),
        ("space_invaders", 148.0, 1668.7),
        ("skiing", -17098.1, -4336.9),
        ("video_pinball", 16256.9, 17667.9),  # the narrowest margin: some copies of the table have 0 for random
        ("surround", -10.0, 6.5),
    ],
)
def test_known_points(game, random, human):
    assert references()[game] == (random, human)
    assert human_normalised(game, random) == 0.0
    assert human_normalised(game, human) == 1.0


def test_the_line_goes_on_beyond_the_points():
    assert human_normalised("pong", 21.0) == pytest.approx(1.1813, abs=1e-4)
    assert human_normalised("pong", -21.0) == pytest.approx(-0.0085, abs=1e-4)
    # The paper's shallow and deep networks after 200M frames: raw 640 and 787, many times a human.
    assert human_normalised("breakout", 640.0) == pytest.approx(22.163, abs=1e-3)
    assert human_normalised("breakout", 787.0) == pytest.approx(27.267, abs=1e-3)


def test_the_other_games_have_no_such_score():
    assert human_normalised("adventure", 1.0) is None
    assert human_normalised("Pong", 1.0) is None
