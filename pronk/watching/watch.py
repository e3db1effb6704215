"""Shows the agent playing: in a window, as a film, or step by step as text."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pronk.config import ResolvedConfig
from pronk.envs.filmed import Filmed, make_filmed
from pronk.processes.failures import user_code
from pronk.types import Array, Failure, Tree, UserError, leaves, map_tree
from pronk.watching.film import View, can_mp4, check_film, compose, is_picture, score_text, write_film
from pronk.watching.window import Window, draw_without_screen, why_no_window

MOST_VIEWS = 9  # environments side by side, unless more are asked for
FINAL_STEPS = 2_000  # of the clip at the end of a training
MOST_NUMBERS = 8  # of an observation that is written out

Say = Callable[[str], None]


class Scene(NamedTuple):
    """What there is to see after a step, or after the reset, before the first action."""

    views: list[View]
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
    task: str | None = None,
    trust: bool = False,
    say: Say = print,
    progress: Callable[[Scene], None] = lambda scene: None,
) -> Watched:
    """Let a run's agent play: into a film (`video`, .mp4 or .gif), else in a window, else as text through `say`.

    `grid` environments are played side by side, `steps` ends it early, `width` is in pixels, of the whole picture. Of a
    run with several tasks, `task` is played, or the environments play one after the other. A run that names code which
    this account has not trained with is refused (`UserError`), unless `trust` is true.
    """
    check_numbers(episodes=episodes, grid=grid, steps=steps, fps=fps, width=width)
    if seed < 0:
        raise UserError(f"seed must be at least 0, got {seed}")
    target = Path(video) if video else None
    if target:
        check_film(target)
    no_window = why_no_window()
    as_text = target is None and (text or no_window is not None)
    count = 1 if as_text else min(episodes, grid or MOST_VIEWS)
    with playing(run, count, episodes, steps, deterministic, best, seed, task, trust) as (scenes, filmed):
        opening = next(scenes)
        drawable = all(is_picture(view.picture) for view in opening.views)
        if target and not drawable:
            raise UserError(f"cannot film {run}: its environment draws no pictures (render_mode rgb_array)")
        ended: list[tuple[float, int]] = []
        followed = follow(itertools.chain([opening], scenes), ended, progress)
        if target:
            write_film(target, (compose(scene.views, width) for scene in followed), fps or filmed.fps)
        elif as_text or not drawable:
            if not text:
                reason = no_window if drawable else "the environment draws no pictures"
                hint = "; it can be filmed into a .gif" if drawable else ""
                say(f"{reason}: showing text instead{hint}")
            trace(followed, filmed, say)
        else:
            with Window(f"pronk: {run}", fps or filmed.fps) as window:
                for scene in followed:
                    if not window.show(compose(scene.views, width)):
                        break
    return Watched([score for score, _ in ended], [length for _, length in ended], target)


def follow(
    scenes: Iterator[Scene], ended: list[tuple[float, int]], progress: Callable[[Scene], None]
) -> Iterator[Scene]:
    """Pass the scenes on, adding the episodes that ended to `ended`."""
    for scene in scenes:
        ended += scene.ended
        progress(scene)
        yield scene


def check_numbers(**numbers: float | None) -> None:
    """Raise unless each is at least 1."""
    for name, value in numbers.items():
        if value is not None and not value >= 1:
            raise UserError(f"{name} must be at least 1, got {value:g}")


@contextlib.contextmanager
def playing(
    run: str | Path,
    count: int,
    episodes: int,
    steps: int | None,
    deterministic: bool,
    best: bool,
    seed: int,
    task: str | None = None,
    trust: bool = False,
) -> Iterator[tuple[Iterator[Scene], Filmed]]:
    """Play a run's agent in `count` environments, which are closed when the block is left."""
    from pronk.evaluation.playing import checkpoint_of, config_to_play
    from pronk.runs.directory import find_run

    state = checkpoint_of(find_run(str(run)), best)
    config = config_to_play(state, run, trust)
    with playing_checkpoint(config, state, count, episodes, steps, deterministic, seed, task) as played:
        yield played


@contextlib.contextmanager
def playing_checkpoint(
    config: ResolvedConfig,
    state: dict[str, Any],
    count: int,
    episodes: int,
    steps: int | None,
    deterministic: bool = False,
    seed: int = 1,
    task: str | None = None,
) -> Iterator[tuple[Iterator[Scene], Filmed]]:
    """As `playing`, with the content of a checkpoint."""
    import torch

    from pronk.evaluation.playing import restored_policy
    from pronk.seeding import evaluation_seeds

    torch.set_num_threads(1)  # one observation at a time: more threads only get in each other's way
    draw_without_screen()
    policy_seed, env_seeds = evaluation_seeds(seed, count)
    with user_code("the environment"):
        filmed = make_filmed(config, count, task)
    try:
        policy = restored_policy(config, filmed.env.spec, state, filmed.env.count, policy_seed, deterministic)
        yield scenes_of(filmed, policy, episodes, env_seeds, steps), filmed
    finally:
        filmed.env.close()


def scenes_of(filmed: Filmed, policy: Any, episodes: int, seeds: list[int], steps: int | None) -> Iterator[Scene]:
    """Play until every view has shown its share of the episodes: its first, and every `count`-th after that."""
    env = filmed.env
    names = env.spec.tasks if len(env.spec.tasks) > 1 else ("",)
    views = [View(index + 1, task=names[task]) for index, task in enumerate(env.task)]
    with user_code("the environment"):
        step = env.reset(seeds)
        look_at(views, filmed)
        yield Scene(views, step.observation, None, None, [])
        ended = np.zeros(env.count, bool)
        for number in itertools.count(1):
            seen = map_tree(np.copy, step.observation)
            action, _ = policy.act(step.observation, step.first)
            step = env.step(action)
            count_step(views, step.reward, ended, step.valid)
            look_at(views, filmed)
            ended = ~np.isnan(step.episode_return)
            finished = [
                (view.score, view.step) for view, end in zip(views, ended, strict=True) if end and not view.over
            ]
            for view, end in zip(views, ended, strict=True):
                view.over |= bool(end) and view.episode + env.count > episodes
            yield Scene(views, seen, action, step.reward, finished)
            if all(view.over for view in views) or number == steps:
                return


def count_step(views: list[View], reward: Array, ended: Array, played: Array) -> None:
    """Update episode, step and score of the views that still play. A step that only reset was not `played`."""
    for index, view in enumerate(views):
        if view.over:
            continue
        if ended[index]:
            view.episode, view.step, view.score = view.episode + len(views), 0, 0.0
        if played[index]:
            view.step, view.score = view.step + 1, view.score + float(reward[index])


def look_at(views: list[View], filmed: Filmed) -> None:
    """Take new pictures of the environments that still play."""
    for view, picture in zip(views, filmed.look(), strict=True):
        if not view.over:
            view.picture = picture


def trace(scenes: Iterator[Scene], filmed: Filmed, say: Say) -> None:
    """Write one line per step of a single environment: action, reward, return, observation."""
    say(f"{'step':>6}  {'action':<12}{'reward':>9}{'return':>11}  observation")
    before: Tree | None = None
    for scene in scenes:
        view = scene.views[0]
        observation = map_tree(lambda array: np.array(array[0]), scene.observation)
        if scene.action is not None and scene.reward is not None:
            action = numbers(np.asarray(filmed.env.decode(scene.action)[0]))
            reward, score = score_text(float(scene.reward[0])), score_text(view.score)
            say(f"{view.step:>6}  {action:<12}{reward:>9}{score:>11}  {digest(observation, before)}")
        before = observation
        if isinstance(view.picture, str):
            say(view.picture.rstrip())
        for total, length in scene.ended:
            say(f"episode {view.episode} ended: return {score_text(total)} in {length:,} steps")


def digest(observation: Tree, before: Tree | None = None) -> str:
    """Return an observation as text: few numbers as they are; of many, the shape and the share that has changed."""
    parts = []
    earlier = dict(leaves(before)) if before is not None else {}
    for name, array in leaves(observation):
        array = np.asarray(array)
        if array.size <= MOST_NUMBERS:
            shown = numbers(array)
        else:
            shown = "x".join(map(str, array.shape))
            if name in earlier:
                shown += f", {np.mean(array != earlier[name]):.1%} changed"
        parts.append(f"{name}: {shown}" if name else shown)
    return "; ".join(parts)


def numbers(array: Array) -> str:
    """`2`, or `0.1 -2 3`."""
    return " ".join(f"{value:.4g}" for value in np.atleast_1d(array).reshape(-1).tolist())


def film_final(run: Path, say: Say, tasks: int = 1) -> Path | None:
    """Film an episode of each task, of at most nine, into the run's directory. A failure is reported, not raised."""
    from pronk.evaluation.playing import checkpoint_of, config_to_play
    from pronk.runs.directory import find_run

    folder = run / "videos"
    try:
        state = checkpoint_of(find_run(str(run)), best=False)
        return film_checkpoint(config_to_play(state, run, trust=True), state, folder, "final", tasks=tasks)
    except (UserError, Failure, OSError) as error:
        say(f"run.video: no clip: {error}")
        with contextlib.suppress(OSError):
            folder.rmdir()  # if nothing is in it
        return None


def film_checkpoint(
    config: ResolvedConfig,
    state: dict[str, Any],
    folder: Path,
    name: str,
    progress: Callable[[Scene], None] = lambda scene: None,
    tasks: int | None = None,
) -> Path:
    """Film an episode of each task with the content of a checkpoint, and return the clip: FOLDER/NAME.mp4 or .gif.

    A picture from its second half is kept beside an MP4, because browsers show black until it is played. Raises
    UserError where the environment draws no pictures.
    """
    count = min(tasks or len(config.env.each_task), MOST_VIEWS)
    folder.mkdir(exist_ok=True)
    target = folder / f"{name}.{'mp4' if can_mp4() else 'gif'}"
    with playing_checkpoint(config, state, count, count, FINAL_STEPS) as (scenes, filmed):
        opening = next(scenes)
        if not all(is_picture(view.picture) for view in opening.views):
            raise UserError("the environment draws no pictures (render_mode rgb_array)")
        followed = follow(itertools.chain([opening], scenes), [], progress)
        write_film(target, (compose(scene.views) for scene in followed), filmed.fps, poster=True)
    return target
