"""What the shell completes after TAB: presets, settings and runs. `pronk --install-completion` sets it up.

Each candidate is complete: `run.seed=1` is valid as it stands, and shows the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def complete_source(incomplete: str) -> Iterator[tuple[str, str]]:
    """Complete what to train: presets, YAML files, and runs to resume."""
    from pronk.config.loading import preset_names, read_source

    for name in preset_names():
        if name.startswith(incomplete):
            yield name, read_source(name)[0]["description"]
    for path in sorted(Path().glob("*.y*ml")):
        if path.name.startswith(incomplete):
            yield path.name, "a file"
    yield from complete_run(incomplete)


def complete_override(incomplete: str) -> Iterator[tuple[str, str]]:
    """Complete `section.key=value`: with every word that fits, or with the default."""
    from pronk.config.reference import knobs

    for knob in knobs():
        shown = "null" if knob.default is None else str(knob.default).lower() if knob.choices else knob.default
        for value in knob.choices or (shown,):
            candidate = f"{knob.path}={value}".replace(" ", "")
            if candidate.startswith(incomplete):
                yield candidate, knob.meaning.partition(". ")[0]


def complete_key(incomplete: str) -> Iterator[tuple[str, str]]:
    """Complete the name of a section or a setting."""
    from pronk.config.reference import knobs, sections

    for name, about in [*sections().items(), *((knob.path, knob.meaning.partition(". ")[0]) for knob in knobs())]:
        if name.startswith(incomplete):
            yield name, about


def complete_run(incomplete: str) -> Iterator[tuple[str, str]]:
    """Complete the name of a run under runs/, the newest first."""
    from pronk.runs.reading import RUNS, runs_below

    found = runs_below(RUNS) if RUNS.is_dir() else []
    if found and "last".startswith(incomplete):
        yield "last", f"the newest: {found[0].path.name}"
    for run in found:
        for name in (str(run.path.relative_to(RUNS)), str(run.path)):
            if name.startswith(incomplete):
                yield name, run.state
                break
