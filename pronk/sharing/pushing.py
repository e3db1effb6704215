"""Shares a trained policy: gathers weights, configuration, scores, curve and card in a folder, and may send it to the
Hugging Face Hub.

Only the files listed in FILES leave this machine: no logs, no checkpoints, no paths, nothing of the user's account.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pronk.config import recorded
from pronk.config.named import import_extra
from pronk.runs.reading import Run
from pronk.sharing.card import card
from pronk.types import Failure, UserError

if TYPE_CHECKING:
    from pronk.runs.directory import RunDirectory

FILES = ("README.md", "config.yaml", "curve.png", "model.safetensors", "model_safetensors.py", "scores.json")
MARK = "library_name: pronk"  # in every card that Pronk wrote
LOCAL = ("./", "../", "/", "~")
SCORES = ("episodes", "mean", "std", "min", "max", "mean_length", "human_normalised", "deterministic")


class Pushed(NamedTuple):
    """Where the policy is now, its files and its scores."""

    address: str
    """A URL or a folder."""
    files: list[Path]
    scores: dict[str, Any]


def push(
    run: str | Path,
    repo: str,
    *,
    best: bool = False,
    episodes: int = 20,
    public: bool = False,
    trust: bool = False,
) -> Pushed:
    """Share a run's newest (or best) policy as `owner/name` on the Hub, or in a folder (`./name`).

    Where the run has no evaluation of that checkpoint, `episodes` episodes are played for the score (0: none). A run
    that names code which this account has not trained with is refused (`UserError`), unless `trust` is true.
    """
    from pronk.runs.directory import find_run

    if episodes < 0:
        raise UserError(f"episodes must be at least 0, got {episodes}")
    is_local = repo.startswith(LOCAL) or repo in (".", "..")
    if not is_local and not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise UserError(f"{repo!r} is neither owner/name on the Hub nor a folder; write a folder as ./{repo}")
    for package in ("safetensors", "matplotlib", *(() if is_local else ("huggingface_hub",))):
        import_extra(package, "sharing a policy", "hub")
    directory = find_run(str(run))
    if is_local:
        folder = Path(repo).expanduser()
        refuse_foreign(folder)
        scores = gather(directory, folder, folder.resolve().name, best, episodes, trust)
        return Pushed(str(folder), [folder / name for name in FILES], scores)
    with tempfile.TemporaryDirectory(prefix="pronk-push-") as temporary:
        folder = Path(temporary)
        scores = gather(directory, folder, repo, best, episodes, trust)
        address = send(folder, repo, public)
    return Pushed(address, [Path(name) for name in FILES], scores)


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder with files that `push` did not write."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder")
    readme = folder / "README.md"
    pushed = readme.is_file() and MARK in readme.read_text(encoding="utf-8", errors="replace")
    if folder.is_dir() and any(folder.iterdir()) and not pushed:
        raise UserError(f"{folder} contains files that `pronk push` did not write; choose another folder")


def gather(
    directory: RunDirectory, folder: Path, name: str, best: bool, episodes: int, trust: bool = False
) -> dict[str, Any]:
    """Write FILES into the folder; returns the scores."""
    from pronk.evaluation.playing import checkpoint_of
    from pronk.exports import export
    from pronk.plotting import plot
    from pronk.runs.atomic import write_atomically

    state = checkpoint_of(directory, best)
    config = recorded(state["config"])
    environment = config.env.label
    exported = export(directory.path, "safetensors", folder / "model.safetensors", best=best, trust=trust)
    scores = {
        "training": {key: state["metrics"][key] for key in ("env_steps", "updates", "episodes", "wall_seconds")},
        "evaluation": evaluation_of(directory, state["metrics"]["env_steps"], best, episodes, trust),
    }
    plot(directory.path, folder / "curve.png", only=["return"], title=f"{environment}, seed {config.run.seed}")
    write_atomically(folder / "config.yaml", config.to_shared_yaml().encode())
    write_atomically(folder / "scores.json", (json.dumps(scores, indent=2) + "\n").encode())
    program = exported.program.read_text(encoding="utf-8")
    write_atomically(folder / "README.md", card(name, environment, config, scores, program).encode())
    return scores


def evaluation_of(
    directory: RunDirectory, steps: int, best: bool, episodes: int, trust: bool = False
) -> dict[str, Any] | None:
    """Return the run's own evaluation of this checkpoint; if there is none, play now. None if `episodes` is 0."""
    from pronk.evaluation.playing import evaluate, flat

    known = [line for line in Run(directory.path).evaluations if line.get("env_steps") == steps]
    if known:
        return scores_in(known[-1])
    if episodes == 0:
        return None
    return scores_in(flat(evaluate(directory.path, episodes, best=best, trust=trust).summary())) | {
        "deterministic": False
    }


def scores_in(line: dict[str, Any]) -> dict[str, Any]:
    """Return what a line of eval.jsonl says of the returns; a task's have its name after a slash."""
    names = sorted(line, key=lambda name: "/" in name)  # those of tasks last
    return {name: line[name] for name in names if name.partition("/")[0] in SCORES}


def send(folder: Path, repo: str, public: bool) -> str:
    """Upload the folder; returns the address. A repository made for it is private, unless `public`."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import LocalTokenNotFoundError

    api = HfApi(library_name="pronk")
    try:
        url = api.create_repo(repo, private=not public, exist_ok=True)
        if not public and not api.model_info(repo).private:
            raise UserError(f"{repo} is a public repository; choose the option `public` to push to it")
        api.upload_folder(
            repo_id=repo, folder_path=folder, allow_patterns=list(FILES), commit_message="Push from Pronk"
        )
    except LocalTokenNotFoundError:
        raise UserError("not logged in to the Hub; run `hf auth login`, or set HF_TOKEN") from None
    except UserError:
        raise
    except Exception as error:  # network and service errors; the classes differ between versions of the package
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Failure(f"cannot push to {repo}: {reason}") from error
    return str(url)
