"""Learning curves of one run or many, as a file: which runs, which name, which format. `figures.py` draws."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pronk.config.errors import nearest
from pronk.config.named import import_extra
from pronk.plotting.comparison import Group, group_runs
from pronk.plotting.curves import BANDS, CENTRES
from pronk.plotting.figures import AXES, Options, cells_of, draw, styled, wanted_cells
from pronk.plotting.lineage import draw_population, is_population
from pronk.runs.reading import RUNS, Run, find_runs, return_text
from pronk.types import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = ("png", "svg", "pdf")
FORMATS = (*PICTURES, "html")


@dataclass(frozen=True)
class Plot:
    """What was drawn, and where it was written."""

    path: Path
    groups: list[Group]
    notes: list[str]


def plot(
    runs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    x: str = "steps",
    only: Sequence[str] = (),
    smooth: float | None = None,
    centre: str = "mean",
    band: str = "range",
    title: str | None = None,
    labels: Sequence[str] = (),
) -> Plot:
    """Draw the learning curves of runs into a file: PNG, SVG, PDF or HTML, by its suffix.

    A directory that is not a run stands for all the runs in it. That of a population alone, without `only`, is drawn
    with its copies and its schedule of settings. `only` names the panels (see PANELS; any other metric
    of metrics.jsonl works too), `labels` the groups in their order. The line of several seeds is their `centre` (`mean`
    or `iqm`) with a `band` (`range`, `std`, or `bootstrap`: the 95% interval of the line). Without `out`, plot.png goes
    into the run's directory, or into the current one where there are several runs.
    """
    names = [str(runs)] if isinstance(runs, str | Path) else [str(run) for run in runs]
    options = Options(x=x, smooth=smooth, band=band, centre=centre, title=title, only=tuple(only))
    check_options(options)
    if len(names) == 1 and not only and is_population(population := folder_of(names[0])):
        return plot_population(population, Path(out) if out else population / "plot.png", title)
    found = find_runs(names)
    path = Path(out) if out else (found[0].path if len(found) == 1 else Path()) / "plot.png"
    check_path(path)
    drawn = [run for run in found if run.metrics]
    notes = [f"{run.path} has no metrics yet ({run.state}); left out" for run in found if not run.metrics]
    if not drawn:
        raise UserError(f"nothing to plot: {found[0].path} has no metrics yet ({found[0].state})")
    groups = renamed(group_runs(drawn), labels)
    notes += [
        f"{run.path} is still running; drawn up to {run.last['env_steps']:,} steps"
        for run in drawn
        if run.state == "running" and "env_steps" in run.last
    ]
    if any(group.hidden for group in groups):
        notes.append(
            f"the groups differ in {groups[0].hidden} more settings than the labels show; name them with labels"
        )
    shown = cells_of(groups, options)
    empty = [cell for cell in wanted_cells(groups, options) if cell not in shown]
    notes += [f"{environment} has no values of {name} yet; that panel is left out" for name, environment in empty]
    save(draw(groups, options), path, groups)
    return Plot(path, groups, notes)


def folder_of(name: str) -> Path:
    """Return a directory by its path, or by its name under runs/."""
    path = Path(name)
    return path if path.exists() or not (RUNS / name).is_dir() else RUNS / name


def plot_population(folder: Path, path: Path, title: str | None) -> Plot:
    """Draw the returns, copies and settings of a population."""
    check_path(path, PICTURES)
    if not any(run.metrics for run in find_runs([str(folder)])):
        raise UserError(f"nothing to plot: the members of {folder} have no metrics yet")
    write_picture(draw_population(folder, title), path)
    return Plot(path, [], [])


def check_options(options: Options) -> None:
    """Raise on wrong options, before anything is read."""
    given = (("x", options.x, tuple(AXES)), ("centre", options.centre, CENTRES), ("band", options.band, BANDS))
    for name, value, choices in given:
        if value not in choices:
            raise UserError(f"{name} must be one of {', '.join(choices)}, got {value!r}{nearest(value, choices)}")
    if options.smooth is not None and not 0 <= options.smooth <= 0.5:
        raise UserError(f"smooth must be a share of the axis from 0 to 0.5, got {options.smooth:g}")


def check_path(path: Path, formats: Sequence[str] = FORMATS) -> None:
    """Raise unless the format is known, the folder exists and there is something to draw with."""
    import_extra("matplotlib", f"drawing {path.name}", "plot")
    ending = path.suffix.lower().lstrip(".")
    if ending not in formats:
        raise UserError(f"cannot write {path}: its name must end in {', '.join('.' + one for one in formats)}")
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: there is no directory {path.parent}")


def renamed(groups: list[Group], labels: Sequence[str]) -> list[Group]:
    """Return the groups under the user's labels."""
    if not labels:
        return groups
    kinds = list(dict.fromkeys(group.label for group in groups))
    if len(labels) != len(kinds):
        names = "; ".join(kind or "all runs" for kind in kinds)
        raise UserError(f"give a label for each of the {len(kinds)} groups ({names}), got {len(labels)}")
    renaming = dict(zip(kinds, labels, strict=True))
    return [Group(group.runs, group.environment, renaming[group.label]) for group in groups]


def save(figure: Figure, path: Path, groups: list[Group]) -> None:
    """Write the figure in the format of the file's suffix; as HTML with a table of the runs."""
    if path.suffix.lower() == ".html":
        write(path, page(picture_of(figure, "svg").decode(), groups))
    else:
        write_picture(figure, path)


def write_picture(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF."""
    write(path, picture_of(figure, path.suffix.lower().lstrip(".")))


def picture_of(figure: Figure, kind: str) -> bytes:
    """Return the figure as a file of this format; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with styled():
        figure.savefig(buffer, format=kind, dpi=200, metadata=dates.get(kind))
    return buffer.getvalue()


def write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None


def page(picture: str, groups: list[Group]) -> bytes:
    """Return a self-contained HTML page: the picture as SVG, and a table of the runs."""
    rows = "".join(
        f"<tr><td>{html.escape(group.environment)}</td><td>{html.escape(group.label)}</td>"
        f"<td>{html.escape(run.name)}</td><td>{html.escape(run.state)}</td>"
        + "".join(f"<td class=n>{number}</td>" for number in figures_of(run))
        for group in groups
        for run in group.runs
    )
    head = "".join(f"<th scope=col>{name}</th>" for name in COLUMNS)
    title = html.escape(", ".join(dict.fromkeys(group.environment for group in groups)))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} - pronk plot</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{CSS}</style></head><body>
<figure role="img" aria-label="Learning curves: {title}">{picture[picture.index("<svg") :]}</figure>
<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>
</body></html>
""".encode()


COLUMNS = ("environment", "settings", "run", "state", "steps", "best return", "last return", "steps/s")
CSS = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #111;
  background: #fff } figure { margin: 0 } svg { width: 100%; height: auto } .n { text-align: right }
table { border-collapse: collapse; font-size: 13px; width: 100% }
th, td { text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #ddd }
"""


def figures_of(run: Run) -> list[str]:
    """Return the numbers in a run's row of the table."""
    row = run.overview()
    rate = row["steps_per_second"]
    returns = [return_text(row["best_return"]), return_text(row["last_return"])]
    return [f"{row['env_steps']:,}", *returns, f"{rate:,.0f}" if rate else "-"]
