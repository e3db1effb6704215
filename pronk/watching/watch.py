"""The agent playing, to be seen: in a window, as a film, or step by step as text."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pronk.envs.filmed import Filmed, make_filmed
from pronk.processes.failures import user_code
from pronk.types import Array, Failure, Tree, UserError, leaves, map_tree
from pronk.watching.film import Seat, can_mp4, check_film, compose, is_picture, open_film, score_text
from pronk.watching.window import Window, draw_without_screen, why_no_window

MOST_SEATS = 9  # environments side by side, unless more are asked for
FINAL_STEPS = 2_000  # of the clip at the end of a training
MOST_NUMBERS = 8  # of an observation that is written out

Tell = Callable[[str], None]


class Scene(NamedTuple):
    """What there is to see after a step (or after the start, when nothing was done yet)."""

    seats: list[Seat]
    observation: Tree
    """What the action was chosen from."""
    action: Array | None
    reward: Array | None
    ended: list[tuple[float, int]]
    """Return and length of the episodes that ended with this step."""


class Watched(NamedTuple):
    """The episodes that were played to their end, and the film of them."""

    returns: list[float]
    lengths: list[int]
    video: Path | None


def watch(
    run: str | Path,
    video: str | Path | None = None,
    *,
    episodes: int = 1,
    grid: int | None = None,
    steps: int | None = None,
    fps: float | None = None,
    width: int | None = None,
    deterministic: bool = False,
    best: bool = False,
    seed: int = 1,
    text: bool = False,
    tell: Tell = print,
    progress: Callable[[Scene], None] = lambda scene: None,
) -> Watched:
    """Let a run's agent play: into a film (`video`, .mp4 or .gif), else in a window, else as text through `tell`.

    `grid` environments are played side by side, `steps` ends it early, `width` is in pixels, of the whole picture.
    """
    check_numbers(episodes=episodes, grid=grid, steps=steps, fps=fps, width=width)
    if seed < 0:
        raise UserError(f"--seed: {seed} does not fit: at least 0")
    target = Path(video) if video else None
    if target:
        check_film(target)
    no_window = why_no_window()
    as_text = target is None and (text or no_window is not None)
    count = 1 if as_text else min(episodes, grid or MOST_SEATS)
    with playing(run, count, episodes, steps, deterministic, best, seed) as (scenes, filmed):
        opening = next(scenes)
        drawable = all(is_picture(seat.picture) for seat in opening.seats)
        if target and not drawable:
            raise UserError(f"--video: the environment of {run} draws no pictures (render_mode rgb_array)")
        ended: list[tuple[float, int]] = []
        followed = follow(itertools.chain([opening], scenes), ended, progress)
        if target:
            with open_film(target, fps or filmed.fps) as film:
                for scene in followed:
                    film.write(compose(scene.seats, width))
        elif as_text or not drawable:
            if not text:
                reason = no_window if drawable else "the environment draws no pictures"
                hint = "; --video FILE.gif films it" if drawable else ""
                tell(f"{reason}: a trace as text{hint}")
            trace(followed, filmed, tell)
        else:
            with Window(f"pronk: {run}", fps or filmed.fps) as window:
                for scene in followed:
                    if not window.show(compose(scene.seats, width)):
                        break
    return Watched([score for score, _ in ended], [length for _, length in ended], target)


def follow(
    scenes: Iterator[Scene], ended: list[tuple[float, int]], progress: Callable[[Scene], None]
) -> Iterator[Scene]:
    """The same scenes, remembering which episodes have ended."""
    for scene in scenes:
        ended += scene.ended
        progress(scene)
        yield scene


def check_numbers(**numbers: float | None) -> None:
    """Each at least 1."""
    for name, value in numbers.items():
        if value is not None and not value >= 1:
            raise UserError(f"--{name}: {value:g} does not fit: at least 1")


@contextlib.contextmanager
def playing(
    run: str | Path, count: int, episodes: int, steps: int | None, deterministic: bool, best: bool, seed: int
) -> Iterator[tuple[Iterator[Scene], Filmed]]:
    """A run's agent in `count` environments; they end with the block."""
    import torch

    from pronk.config import resolve, validate
    from pronk.evaluation.playing import checkpoint_of, restored_policy
    from pronk.runs.directory import find_run
    from pronk.seeding import evaluation_seeds

    state = checkpoint_of(find_run(str(run)), best)
    config = resolve(validate(state["config"]))
    torch.set_num_threads(1)  # one observation at a time: more threads only get in each other's way
    draw_without_screen()
    policy_seed, env_seeds = evaluation_seeds(seed, count)
    with user_code("the environment"):
        filmed = make_filmed(config, count)
    try:
        policy = restored_policy(config, filmed.env.spec, state, filmed.env.count, policy_seed, deterministic)
        yield scenes_of(filmed, policy, episodes, env_seeds, steps), filmed
    finally:
        filmed.env.close()


def scenes_of(filmed: Filmed, policy: Any, episodes: int, seeds: list[int], steps: int | None) -> Iterator[Scene]:
    """Play until every seat has had its share of the episodes: the first, and every `count`-th after it."""
    env = filmed.env
    seats = [Seat(index + 1) for index in range(env.count)]
    with user_code("the environment"):
        step = env.reset(seeds)
        look_at(seats, filmed)
        yield Scene(seats, step.observation, None, None, [])
        ended = np.zeros(env.count, bool)
        for number in itertools.count(1):
            seen = map_tree(np.copy, step.observation)
            action, _ = policy.act(step.observation, step.first)
            step = env.step(action)
            count_step(seats, step.reward, ended, step.valid)
            look_at(seats, filmed)
            ended = ~np.isnan(step.episode_return)
            finished = [
                (seat.score, seat.step) for seat, end in zip(seats, ended, strict=True) if end and not seat.over
            ]
            for seat, end in zip(seats, ended, strict=True):
                seat.over |= bool(end) and seat.episode + env.count > episodes
            yield Scene(seats, seen, action, step.reward, finished)
            if all(seat.over for seat in seats) or number == steps:
                return


def count_step(seats: list[Seat], reward: Array, ended: Array, played: Array) -> None:
    """Episode, step and score of those who still play. Where an environment only reset, no step was `played`."""
    for index, seat in enumerate(seats):
        if seat.over:
            continue
        if ended[index]:
            seat.episode, seat.step, seat.score = seat.episode + len(seats), 0, 0.0
        if played[index]:
            seat.step, seat.score = seat.step + 1, seat.score + float(reward[index])


def look_at(seats: list[Seat], filmed: Filmed) -> None:
    """New pictures for those who still play."""
    for seat, picture in zip(seats, filmed.look(), strict=True):
        if not seat.over:
            seat.picture = picture


def trace(scenes: Iterator[Scene], filmed: Filmed, tell: Tell) -> None:
    """One line per step of a single environment: what was seen, what was done, what it earned."""
    tell(f"{'step':>6}  {'action':<12}{'reward':>9}{'return':>11}  observation")
    for scene in scenes:
        seat = scene.seats[0]
        if scene.action is not None and scene.reward is not None:
            action = numbers(np.asarray(filmed.env.decode(scene.action)[0]))
            reward, score = score_text(float(scene.reward[0])), score_text(seat.score)
            seen = digest(map_tree(lambda array: array[0], scene.observation))
            tell(f"{seat.step:>6}  {action:<12}{reward:>9}{score:>11}  {seen}")
        if isinstance(seat.picture, str):
            tell(seat.picture.rstrip())
        for total, length in scene.ended:
            tell(f"episode {seat.episode} ended: return {score_text(total)} in {length:,} steps")


def digest(observation: Tree) -> str:
    """Few numbers are written out; of many, their shape, their mean and a checksum that tells whether they changed."""
    parts = []
    for name, array in leaves(observation):
        array = np.asarray(array)
        if array.size <= MOST_NUMBERS:
            shown = numbers(array)
        else:
            checksum = zlib.crc32(np.ascontiguousarray(array).tobytes())
            shape = "x".join(map(str, array.shape))
            shown = f"{shape} {array.dtype}, mean {float(array.mean()):.4g}, checksum {checksum:08x}"
        parts.append(f"{name}: {shown}" if name else shown)
    return "; ".join(parts)


def numbers(array: Array) -> str:
    """`2`, or `0.1 -2 3`."""
    return " ".join(f"{value:.4g}" for value in np.atleast_1d(array).reshape(-1).tolist())


def film_final(run: Path, say: Tell) -> Path | None:
    """A clip of what a training has come to, in the run's directory; whatever hinders it is only said."""
    folder = run / "videos"
    target = folder / f"final.{'mp4' if can_mp4() else 'gif'}"
    try:
        folder.mkdir(exist_ok=True)
        return watch(run, target, steps=FINAL_STEPS).video
    except (UserError, Failure, OSError) as error:
        say(f"run.video: no clip: {error}")
        with contextlib.suppress(OSError):
            folder.rmdir()  # if nothing is in it
        return None
