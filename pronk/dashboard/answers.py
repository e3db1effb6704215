"""The requests of the page: one function each, from a folder of runs to plain data.

A run is named as in the table of runs, never by a path, so nothing outside the folder can be requested.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from pronk.config.trees import flat
from pronk.dashboard import runs
from pronk.dashboard.columns import columns, number
from pronk.dashboard.logs import all_logs, read_log
from pronk.dashboard.seeds import groups_of, same_but_seed, seed_table
from pronk.dashboard.sweeps import all_sweeps
from pronk.runs import json_lines
from pronk.runs.reading import Run, stamp
from pronk.runs.tags import write_tags

POINTS = 500  # of a curve, unless asked otherwise: more than one per pixel cannot be seen
MOST_POINTS = 5000
CLIPS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
POSTER = ".jpg"  # replaces the suffix of a clip
AXES = ("env_steps", "frames", "wall_seconds")  # grow from line to line
CURVES = {"metrics": "metrics.jsonl", "evaluation": "eval.jsonl"}
WHAT_SPEED_DEPENDS_ON = ("env", "network", "loss", "optimiser", "actors", "learner", "transport")
Question = dict[str, list[str]]  # as `urllib.parse.parse_qs` gives it


class Unanswerable(Exception):  # noqa: N818 - reads as what happened
    """There is no run, curve or clip of that name."""


def all_runs(folder: Path, _: Question) -> dict[str, Any]:
    """Return the table of runs, running ones first, then the newest; groups of several seeds; and the sweeps."""
    known = runs.find(folder)
    found = [{"name": name, **runs.overview(path)} for name, path in known.items()]
    found.sort(key=lambda row: (row["state"] == "running", row["changed"] or 0.0), reverse=True)
    sweeps = all_sweeps(folder)
    in_sweeps = {name for sweep in sweeps for group in sweep["groups"] for name in group["runs"]}
    seeds = seed_table({name: path for name, path in known.items() if name not in in_sweeps}, found)
    return {"folder": str(folder), "now": time.time(), "runs": found, "seeds": seeds, "sweeps": sweeps}


def one_run(folder: Path, question: Question) -> dict[str, Any]:
    """Return everything about one run except its curves."""
    name, path = asked_for(folder, question)
    run = Run(path)
    return {
        "name": name,
        "path": str(path),
        "now": time.time(),
        **runs.overview(path),
        "config": {key: as_text(value) for key, value in flat(run.config).items()},
        "notes": notes(run),
        "lag": run.read_json("lag.json").get("columns"),
        "actors": run.read_json("logs/actors.json"),
        "limit": limit(folder, name, path),
        "clips": clips(path),
        "logs": all_logs(path),
        "seeds": same_but_seed(runs.find(folder), name),
        "note": run.tags.note,
    }


def notes(run: Run) -> list[dict[str, Any]]:
    """What the diagnosis found: one message each, and whether it is over."""
    found = run.read_json("notes.json").get("notes")
    valid = [note for note in found if isinstance(note, dict)] if isinstance(found, list) else []
    return [{"message": str(note.get("message", "")), "over": bool(note.get("over"))} for note in valid]


def curve(folder: Path, question: Question) -> dict[str, Any]:
    """Return columns of numbers: all, those since `after` in `file`, or the last `part` of the file.

    `axis`, `from` and `to` choose the lines between two values of an axis.
    """
    _, path = asked_for(folder, question)
    kind = question.get("kind", ["metrics"])[0]
    if kind not in CURVES:
        raise Unanswerable(f"there is no curve {kind!r}: {', '.join(CURVES)}")
    points = min(MOST_POINTS, max(2, whole_number(question, "points", POINTS)))
    file = path / CURVES[kind]
    goes_on = False
    if "after" in question:
        known, after = whole_number(question, "file"), max(0, whole_number(question, "after"))
        stretch, goes_on = json_lines.follow(file, points, known, after)
    elif question.get("axis", [""])[0] in AXES:
        ends = (float_number(question, "from", -math.inf), float_number(question, "to", math.inf))
        stretch = json_lines.read_between(file, points, question["axis"][0], *ends)
    else:
        part = min(1.0, max(0.0, float_number(question, "part", 1.0)))
        stretch = json_lines.read(file, points, json_lines.share(file, part) if part < 1 else 0)
    answer: dict[str, Any] = {"columns": columns(stretch.lines), "after": stretch.end, "file": str(stretch.file)}
    if kind == "evaluation":
        answer["columns"]["checkpoint"] = [str(line.get("checkpoint") or "") for line in stretch.lines]
    return {**answer, "goes_on": goes_on, "sampled": stretch.sampled}


def difference(folder: Path, question: Question) -> dict[str, Any]:
    """Return the keys in which the configurations of several runs differ, how many are equal, and groups of seeds."""
    known = runs.find(folder)
    names = [name for name in dict.fromkeys(question.get("run", [])) if name in known]
    trees = [flat(Run(known[name]).config) for name in names]
    keys = dict.fromkeys(key for tree in trees for key in tree)
    rows = [(key, [as_text(tree[key]) if key in tree else None for tree in trees]) for key in keys]
    differing = [{"key": key, "values": values} for key, values in rows if len(set(values)) > 1]
    groups = groups_of({name: known[name] for name in names})
    return {"runs": names, "rows": differing, "same": len(rows) - len(differing), "groups": groups}


def log(folder: Path, question: Question) -> dict[str, Any]:
    """Return what was appended to a log since `after` in `file`, or its end."""
    _, path = asked_for(folder, question)
    name = question.get("log", [""])[0]
    if name not in {found["name"] for found in all_logs(path)}:
        raise Unanswerable(f"the run has no log {name!r}")
    return read_log(path / "logs" / name, whole_number(question, "file"), max(0, whole_number(question, "after")))


def change_tags(folder: Path, question: Question, content: Any) -> dict[str, Any]:
    """Replace the tags and the note of a run. Raises UserError where they are not valid."""
    _, path = asked_for(folder, question)
    return write_tags(path, content)._asdict()


def clip(folder: Path, question: Question) -> tuple[Path, str]:
    """Return a video of a run, and its type. Links to files outside of the run are refused."""
    _, path = asked_for(folder, question)
    name = question.get("clip", [""])[0]
    if name not in {found["name"] for found in clips(path)}:
        raise Unanswerable(f"the run has no clip {name!r}")
    return path / "videos" / name, CLIPS[Path(name).suffix]


def poster(folder: Path, question: Question) -> tuple[Path, str]:
    """Return the picture that stands for a clip before it is played."""
    path, _ = clip(folder, question)
    return path.with_suffix(POSTER), "image/jpeg"


def clips(path: Path) -> list[dict[str, Any]]:
    """Return the videos of a run, newest first."""
    found = []
    for file in (path / "videos").glob("*"):
        if file.suffix in CLIPS and file.is_file() and file.resolve().is_relative_to(path.resolve()):
            _, size, changed = stamp(file)
            poster = file.with_suffix(POSTER)
            has_poster = poster.is_file() and poster.resolve().is_relative_to(path.resolve())
            found.append({"name": file.name, "bytes": size, "changed": changed / 1e9, "poster": has_poster})
    return sorted(found, key=lambda one: (one["changed"], one["name"]), reverse=True)


def limit(folder: Path, name: str, path: Path) -> dict[str, Any] | None:
    """Return the machine's limit as measured by `pronk bench`: for this run, or for one that does the same work.

    Measurements on an idle machine are preferred: on a busy one the limit comes out too low.
    """
    same_work = {
        other: place
        for other, place in runs.find(folder).items()
        if (place / "bench.json").exists() and as_fast(place, path)
    }
    measured = [{**Run(place).read_json("bench.json"), "run": other} for other, place in same_work.items()]
    known = [one for one in measured if (number(one.get("limit")) or 0) > 0]
    known.sort(key=lambda one: (bool(one.get("busy")), one["run"] != name))
    return known[0] if known else None


def as_fast(one: Path, other: Path) -> bool:
    """Whether two configurations do the same work per step."""
    trees = Run(one).config, Run(other).config
    return all(trees[0].get(part) == trees[1].get(part) for part in WHAT_SPEED_DEPENDS_ON)


def asked_for(folder: Path, question: Question) -> tuple[str, Path]:
    """Return the run that a question names."""
    name, known = question.get("run", [""])[0], runs.find(folder)
    if name not in known:
        raise Unanswerable(f"there is no run {name!r} in {folder}")
    return name, known[name]


def as_text(value: Any) -> str:
    """Format a setting as in an override."""
    return value if isinstance(value, str) and value else json.dumps(value, default=str)


def whole_number(question: Question, name: str, default: int = 0) -> int:
    """Return an integer of a question, or the default."""
    try:
        return int(question[name][0][:20])
    except (KeyError, ValueError):
        return default


def float_number(question: Question, name: str, default: float) -> float:
    """Return a finite float of a question, or the default."""
    try:
        value = float(question[name][0])
    except (KeyError, ValueError):
        return default
    return value if math.isfinite(value) else default
