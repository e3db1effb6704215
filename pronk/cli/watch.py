"""`pronk watch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pronk.cli.shell import Best, Deterministic, EpisodeSeed, Run, TaskName, Trust, app, err, out

if TYPE_CHECKING:
    from pronk.watching import Scene


@app.command()
def watch(
    run: Run,
    video: Annotated[Path | None, typer.Option(help="File to film into: .mp4 or .gif.")] = None,
    episodes: Annotated[int, typer.Option(help="Whole episodes to play.")] = 1,
    grid: Annotated[int | None, typer.Option(help="Episodes side by side [default: all, up to 9].")] = None,
    steps: Annotated[int | None, typer.Option(help="Stop after this many steps.")] = None,
    fps: Annotated[float | None, typer.Option(help="Steps per second [default: as the environment says].")] = None,
    width: Annotated[int | None, typer.Option(help="Width of the picture in pixels.")] = None,
    deterministic: Deterministic = False,
    best: Best = False,
    seed: EpisodeSeed = 1,
    task: TaskName = None,
    text: Annotated[bool, typer.Option("--text", help="Print a line per step instead of opening a window.")] = False,
    trust: Trust = False,
) -> None:
    """Watch a trained agent play: in a window, as a film, or as text.

    `pronk watch last` opens a window (space pauses, escape ends). `pronk watch last --video play.gif --episodes 4`
    films four episodes side by side, without a screen; .mp4 needs `pip install 'pronk[video]'`. Without a screen and
    without --video, every step is a line of text.
    """
    from pronk.watching import watch as play
    from pronk.watching.film import score_text

    with err.status("loading the agent ...") as status:

        def progress(scene: Scene) -> None:
            if video:
                playing = [view for view in scene.views if not view.over] or scene.views
                status.update(f"filming episode {playing[0].episode} of {episodes}, step {playing[0].step:,}")
            else:
                status.stop()

        seen = play(
            run,
            video,
            episodes=episodes,
            grid=grid,
            steps=steps,
            fps=fps,
            width=width,
            deterministic=deterministic,
            best=best,
            seed=seed,
            text=text,
            task=task,
            trust=trust,
            say=lambda line: out.print(line, highlight=False, soft_wrap=True, markup=False),
            progress=progress,
        )
    if seen.returns:
        mean = score_text(sum(seen.returns) / len(seen.returns))
        word = "episode" if len(seen.returns) == 1 else "episodes"
        out.print(f"{len(seen.returns)} {word}, mean return [bold green]{mean}[/]", highlight=False)
    else:
        out.print("no episode ended", highlight=False)
    if seen.video:
        size = seen.video.stat().st_size / 1024
        out.print(f"Filmed in {seen.video} ({size:,.0f} KiB)", highlight=False, soft_wrap=True, markup=False)
