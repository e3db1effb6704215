import importlib.util
import re

import numpy as np
import pytest
from PIL import Image
from processes import command_line

from pronk.config import load_config
from pronk.envs.filmed import make_filmed
from pronk.evaluation import filmer
from pronk.evaluation.playing import evaluate
from pronk.starting import train
from pronk.types import UserError
from pronk.watching.film import CAPTION
from pronk.watching.watch import digest, watch

SHORT = ["transport=local", "run.total_steps=640", "actors.envs=8", "learner.batch_size=8", "network.hidden=[16]"]
ATARI = [
    "actors.envs=2",
    "learner.batch_size=2",
    "actors.unroll_length=4",
    "run.total_steps=8",
    "network.torso=compact",
]


@pytest.fixture
def trained(tmp_path):
    """Trains for a moment and gives the run directory."""

    def make(source, *overrides):
        path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        train(load_config(source, [*SHORT, *overrides]), run_dir=path)
        return path

    return make


def shown(run, **options):
    """What the tiles of every scene showed: (episode, step, score, brightness)."""
    scenes = []

    def keep(scene):
        scenes.append([(s.episode, s.step, s.score, int(np.asarray(s.picture).flat[0])) for s in scene.views])

    watch(run, run / "film.gif", progress=keep, **options)
    return scenes


# ---- what is played


@pytest.mark.parametrize("memory", [[], ["network.core=lstm", "network.last_action=true", "network.last_reward=true"]])
def test_what_is_watched_is_what_is_evaluated(trained, memory):
    run = trained("own_parts:Diary", "env.kwargs={length: 23}", "optimiser.learning_rate=1e-12", *memory)
    for seed in (1, 2):
        seen = watch(run, text=True, seed=seed, say=lambda line: None)
        result = evaluate(run, 1, seed=seed)
        assert (seen.returns, seen.lengths) == (result.returns, result.lengths)


@pytest.mark.parametrize("source", ["drawn_envs:Counter", "drawn_envs:ManyCounters"])
def test_every_step_is_shown_with_its_score_up_to_the_very_last(trained, source):
    run = trained(source)
    one = shown(run)
    assert [scene[0] for scene in one] == [(1, t, float(t), 10 * t) for t in range(6)]
    several = [scene[0] for scene in shown(run, episodes=2, grid=1)]
    second = [scene for scene in several if scene[0] == 2 and scene[1] > 0]
    assert several[:6] == [scene[0] for scene in one]
    assert second == [(2, t, float(t), 10 * t) for t in range(1, 6)]


def test_a_grid_shares_the_episodes_out_and_holds_the_last_picture(trained):
    scenes = shown(trained("drawn_envs:Counter"), episodes=3, grid=2)
    assert [tile[0] for tile in scenes[0]] == [1, 2]
    assert scenes[-1][0] == (3, 5, 5.0, 50)
    assert scenes[-1][1] == (2, 5, 5.0, 50)


def test_it_ends_after_the_wanted_steps(trained):
    run = trained("drawn_envs:Counter", "env.kwargs.length=1000")
    assert len(shown(run, steps=7)) == 8
    assert watch(run, run / "film.gif", steps=7).returns == []


# ---- films


@pytest.mark.parametrize("draws", ["rgb", "grey", "rgba"])
def test_pictures_of_all_kinds_become_a_film(trained, draws):
    run = trained("drawn_envs:Counter", f"env.kwargs.draws={draws}")
    seen = watch(run, run / "film.gif", width=120)
    with Image.open(seen.video) as film:
        assert (film.width, film.n_frames, film.info["duration"]) == (120, 6, 100)
        film.seek(5)
        assert np.asarray(film.convert("RGB"))[CAPTION + 20, 60].tolist() == pytest.approx([50] * 3, abs=3)


def test_an_environment_that_takes_no_render_mode_is_filmed(trained):
    assert shown(trained("drawn_envs:Plain"))[-1] == [(1, 5, 5.0, 50)]


def test_catch_shows_the_ball_on_the_paddle_when_it_is_caught(trained):
    run = trained("catch", "env.kwargs={rows: 6, columns: 3}")
    filmed = make_filmed(load_config(run / "config.yaml"), 1)
    filmed.env.reset([3])
    pictures = [filmed.look()[0]]
    for _ in range(5):
        step = filmed.env.step(np.array([1]))
        pictures.append(filmed.look()[0])
    assert [picture.shape for picture in pictures] == [(120, 60, 3)] * 6
    lit = [(picture.reshape(6, 20, 3, 20, 3)[:, 5, :, 5].max(axis=-1) > 100) for picture in pictures]
    assert [np.flatnonzero(board[:-1].any(axis=1)).tolist() for board in lit] == [[0], [1], [2], [3], [4], []]
    assert lit[-1][-1].sum() == (1 if step.reward[0] > 0 else 2)


def test_cartpole_is_filmed_as_gymnasium_draws_it(trained):
    pytest.importorskip("pygame")
    run = trained("cartpole", "network.separate_value=true")
    done = command_line("watch", run, "--episodes", 4, "--width", 240, "--video", run / "play.mp4")
    assert done.code == 0, done.err
    assert "4 episodes, mean return" in done.out
    av = pytest.importorskip("av")
    with av.open(str(run / "play.mp4")) as file:
        assert (file.streams.video[0].width, file.streams.video[0].average_rate) == (242, 50)


def test_atari_is_filmed_in_colour_while_the_agent_sees_its_own_frames(trained):
    run = trained("pong", *ATARI)
    config = load_config(run / "config.yaml")
    filmed = make_filmed(config, 2)
    from pronk.envs import make_env

    plain = make_env(config, 2)
    steps = [env.reset([3, 4]) for env in (filmed.env, plain)]
    for number in range(60):
        assert np.array_equal(steps[0].observation, steps[1].observation)
        action = np.array([number % 6, (number + 2) % 6])
        steps = [env.step(action) for env in (filmed.env, plain)]
    first, second = filmed.look()
    assert first.shape == second.shape == (210, 160, 3)
    assert not np.array_equal(first, second)
    assert (first[..., 0] != first[..., 2]).any()  # in colour
    assert filmed.fps == 15
    filmed.env.close()
    plain.close()
    watch(run, run / "film.gif", steps=5)


# ---- without pictures


def lines_of(run, **options):
    lines = []
    seen = watch(run, say=lines.append, **options)
    return lines, seen


def test_an_environment_that_cannot_draw_is_told_step_by_step(trained):
    lines, seen = lines_of(trained("drawn_envs:Blind"))
    assert "draws no pictures: showing text instead" in lines[0] or "no screen here" in lines[0]
    assert lines[1].split() == ["step", "action", "reward", "return", "observation"]
    rows = [line.split() for line in lines[2:5]]
    assert [(row[0], row[3], row[4]) for row in rows] == [
        ("1", "0.50", "0.50"),
        ("2", "0.50", "1"),
        ("3", "0.50", "1.50"),
    ]
    assert "4x4, 0.0% changed" in lines[2]
    assert "4x4, 100.0% changed" in lines[3]
    assert lines[5] == "episode 1 ended: return 1.50 in 3 steps"
    assert (seen.returns, seen.lengths) == ([1.5], [3])


def test_text_that_an_environment_draws_is_shown(trained):
    lines, _ = lines_of(trained("drawn_envs:Counter", "env.kwargs.draws=text"), text=True)
    assert [line for line in lines if line.startswith("<")] == ["<0>", "<1>", "<2>", "<3>", "<4>", "<5>"]


def test_a_digest_writes_few_numbers_out_and_tells_many_apart():
    assert digest(np.array([0.5, -2.0])) == "0.5 -2"
    assert digest({"a": np.array(3), "b": np.array([1.0])}) == "a: 3; b: 1"
    before, after = np.zeros((3, 4)), np.zeros((3, 4))
    after[0, :3] = 1
    assert (digest(before), digest(after, before)) == ("3x4", "3x4, 25.0% changed")


# ---- a window


def test_a_window_shows_all_and_can_be_closed(trained, monkeypatch):
    """SDL's `offscreen` driver is a screen in memory."""
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "offscreen")
    run = trained("drawn_envs:Counter")
    sizes = []

    def look(scene):
        if scene.action is not None and pygame.display.get_init() and pygame.display.get_surface():
            sizes.append(pygame.display.get_surface().get_size())
            if len(sizes) == 3:
                pygame.event.post(pygame.event.Event(pygame.QUIT))

    said = []
    seen = watch(run, episodes=2, fps=100, progress=look, say=said.append)
    assert (said, seen.returns) == ([], [])
    assert sizes == [(482, 180)] * 3
    assert not pygame.display.get_init()
    assert watch(run, fps=200).returns == [5.0]


# ---- mistakes


def test_what_cannot_be_watched_is_said(trained, tmp_path):
    run = trained("drawn_envs:Blind")
    with pytest.raises(UserError, match="draws no pictures"):
        watch(run, tmp_path / "x.gif")
    assert not (tmp_path / "x.gif").exists()
    for options, told in [({"episodes": 0}, "episodes must"), ({"fps": 0}, "fps must"), ({"seed": -1}, "seed must")]:
        with pytest.raises(UserError, match=told):
            watch(run, **options)
    with pytest.raises(UserError, match="its name must end in"):
        watch(run, "x.webm")
    with pytest.raises(UserError, match="no run directory"):
        watch(tmp_path / "nowhere")
    for file in (run / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(UserError, match="no checkpoint yet"):
        watch(run)


# ---- at the end of a training


def test_a_training_films_its_policy_now_and_then_and_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(filmer, "FINISH_SECONDS", 300.0)  # the machine may be busy
    config = load_config("drawn_envs:Counter", [*SHORT, "run.video=true", "run.clip_every_steps=1"])
    train(config, run_dir=tmp_path / "run", say=pytest.fail)
    files = list((tmp_path / "run" / "videos").iterdir())
    films = [file for file in files if file.suffix in (".mp4", ".gif")]
    clips = {film.stem for film in films} - {"final"}
    assert len(clips) == len(films) - 1 >= 1
    assert all(re.fullmatch(r"\d{12}", name) for name in clips)
    assert all(film.stat().st_size > 500 for film in films)
    posters = {file.stem for file in files if file.suffix == ".jpg"}
    assert posters == {film.stem for film in films if film.suffix == ".mp4"}
    assert len(files) == len(films) + len(posters)
    assert not (tmp_path / "run" / "checkpoints" / "filming.pt").exists()


@pytest.mark.parametrize("setting", ["run.video=true", "run.clip_every_steps=1e6"])
def test_a_film_that_needs_a_package_is_refused_before_training(tmp_path, monkeypatch, setting):
    installed = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pygame" else installed(name))
    with pytest.raises(UserError, match=rf"{setting.partition('=')[0]}: .* pip install 'pronk\[toys\]'"):
        train("cartpole", [setting], run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_film_that_cannot_be_made_does_not_spoil_the_training(tmp_path):
    said = []
    config = load_config("drawn_envs:Blind", [*SHORT, "run.video=true"])
    assert train(config, run_dir=tmp_path / "run", say=said.append)["outcome"] == "finished"
    assert len(said) == 1
    assert "run.video: no clip" in said[0]
    assert not (tmp_path / "run" / "videos").exists()
