"""Shares a trained policy: a folder with its weights, configuration, scores, curve and card, sent to the Hugging Face
Hub or left where it is.

Only the files listed in FILES ever leave this machine: no logs, no checkpoints, no paths, nothing of your account.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pronk.config import Config, validate
from pronk.config.named import import_extra
from pronk.exports.card import card
from pronk.runs import json_lines
from pronk.runs.reading import Run
from pronk.types import Failure, UserError

if TYPE_CHECKING:
    from pronk.runs.directory import RunDirectory

FILES = ("README.md", "config.yaml", "curve.png", "model.safetensors", "model_safetensors.py", "scores.json")
MARK = "library_name: pronk"  # in a card of ours
LOCAL = ("./", "../", "/", "~")


class Pushed(NamedTuple):
    """Where it is now, and what."""

    place: str
    files: list[Path]
    scores: dict[str, Any]


def push(run: str | Path, repo: str, *, best: bool = False, episodes: int = 20, public: bool = False) -> Pushed:
    """Share a run's newest (or best) policy as `owner/name` on the Hub, or in a folder (`./name`)."""
    from pronk.runs.directory import find_run

    if episodes < 0:
        raise UserError(f"--episodes: {episodes} does not fit: at least 0")
    is_local = repo.startswith(LOCAL) or repo in (".", "..")
    if not is_local and not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise UserError(f"REPO: {repo!r} is neither owner/name on the Hub nor a folder; a folder is written ./{repo}")
    directory = find_run(str(run))
    if is_local:
        folder = Path(repo).expanduser()
        refuse_foreign(folder)
        scores = gather(directory, folder, folder.resolve().name, best, episodes)
        return Pushed(str(folder), [folder / name for name in FILES], scores)
    import_extra("huggingface_hub", "pronk push to the Hub", "hub")
    with tempfile.TemporaryDirectory(prefix="pronk-push-") as temporary:
        folder = Path(temporary)
        scores = gather(directory, folder, repo, best, episodes)
        place = send(folder, repo, public)
    return Pushed(place, [Path(name) for name in FILES], scores)


def refuse_foreign(folder: Path) -> None:
    """A folder that holds somebody's work is not written to."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"REPO: {folder} is a file, not a folder")
    readme = folder / "README.md"
    ours = readme.is_file() and MARK in readme.read_text(encoding="utf-8", errors="replace")
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise UserError(f"REPO: {folder} has something in it that `pronk push` did not write; choose another folder")


def gather(directory: RunDirectory, folder: Path, name: str, best: bool, episodes: int) -> dict[str, Any]:
    """Write FILES; gives the scores."""
    from pronk.evaluation.playing import checkpoint_of
    from pronk.exports.exporting import export
    from pronk.runs.atomic import write_atomically

    state = checkpoint_of(directory, best)
    config = validate(state["config"])
    exported = export(directory.path, "safetensors", folder / "model.safetensors", best=best)
    scores = {
        "training": {key: state["metrics"][key] for key in ("env_steps", "updates", "episodes", "wall_seconds")},
        "evaluation": evaluated(directory, state["metrics"]["env_steps"], best, episodes),
    }
    draw_curve(Run(directory.path).metrics, folder / "curve.png", f"{title_of(config)}, seed {config.run.seed}")
    write_atomically(folder / "config.yaml", config.to_yaml().encode())
    write_atomically(folder / "scores.json", (json.dumps(scores, indent=2) + "\n").encode())
    program = exported.program.read_text(encoding="utf-8")
    write_atomically(folder / "README.md", card(name, title_of(config), config, scores, program).encode())
    return scores


def evaluated(directory: RunDirectory, steps: int, best: bool, episodes: int) -> dict[str, Any] | None:
    """The run's own evaluation of this checkpoint, where there is one; else play now. None, if not even that."""
    from pronk.evaluation.playing import evaluate

    known = [line for line in json_lines.read_all(directory.evaluations) if line.get("env_steps") == steps]
    if known:
        wanted = ("episodes", "mean", "std", "min", "max", "mean_length", "human_normalised", "deterministic")
        return {key: known[-1][key] for key in wanted if key in known[-1]}
    if episodes == 0:
        return None
    summary = evaluate(directory.path, episodes, best=best).summary()
    return {key: value for key, value in summary.items() if key != "interval"} | {"deterministic": False}


def send(folder: Path, repo: str, public: bool) -> str:
    """To the Hub. A repository that is made for it is private, unless `public`."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import LocalTokenNotFoundError

    api = HfApi(library_name="pronk")
    try:
        url = api.create_repo(repo, private=not public, exist_ok=True)
        if not public and not api.model_info(repo).private:
            raise UserError(f"REPO: {repo} is public; add --public to push to it")
        api.upload_folder(
            repo_id=repo, folder_path=folder, allow_patterns=list(FILES), commit_message="Push from Pronk"
        )
    except LocalTokenNotFoundError:
        raise UserError("REPO: you are not logged in to the Hub: run `hf auth login`, or set HF_TOKEN") from None
    except UserError:
        raise
    except Exception as error:  # of the network and of the service; their packages change
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Failure(f"cannot push to {repo}: {reason}") from error
    return str(url)


def title_of(config: Config) -> str:
    """What was learnt."""
    return config.env.game or config.env.id


def draw_curve(lines: list[dict[str, Any]], path: Path, title: str) -> None:
    """Mean return over environment steps."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(title=title, xlabel="environment steps", ylabel="mean return of the last 100 episodes")
    points = [(line["env_steps"], line["episode_return"]) for line in lines if line.get("episode_return") is not None]
    axes.plot([steps for steps, _ in points], [value for _, value in points], color="#0072b2")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
