"""Reads a configuration: a preset, a YAML file or a Gymnasium id, then `section.key=value` overrides, then validation.

`pronk show` prints the result, which is itself a valid file.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pronk.config import plain_yaml
from pronk.config.config import Config
from pronk.config.errors import explain_validation_error, nearest
from pronk.config.machine import has_gpu
from pronk.config.renamed import RenamedKey, rename_keys
from pronk.config.trees import assign, flat, merged
from pronk.processes import session
from pronk.types import UserError

# Features that runs before 0.2 did not have. Their files do not mention them, and today's defaults are on.
BEFORE_0_2 = {
    "env": {"wrappers": []},
    "network": {"normalise": False, "popart": False, "layer_norm": False},
    "loss": {"barrier_cost": 0.0, "entropy_schedule": "constant"},
}
WITHOUT_GPU = "without_gpu"  # section of a file: settings that replace its others on a machine without a GPU
ATARI_IDS = ("ALE/", "ale_py:ALE/")
SMALL_FRAME = 42  # pixels: a CPU learns from twice as many such frames per second as of 84x84
PRESETS = Path(__file__).parent / "presets"
LONGEST_SHOWN = 80  # characters of a value in a message
XINGTIAN_KEYS = {"alg_para", "env_para", "agent_para", "model_para"}  # sections of XingTian's files; see xingtian.py


class WithoutGpu(UserWarning):
    """Settings for a CPU were taken instead of those for a GPU."""


def preset_names() -> list[str]:
    """Return the names of the presets that come with Pronk."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_config(source: str | Path | Callable[..., Any], overrides: Sequence[str] | None = None) -> Config:
    """Load a preset, a YAML file or the defaults for an environment, with overrides on top.

        config = load_config("cartpole", ["run.seed=3", "optimiser.learning_rate=3e-4"])
        config = load_config("Acrobot-v1")  # a Gymnasium id
        config = load_config(MyEnv, ["env.kwargs.size=8"])  # a class, or a function that makes one

    Raises `UserError` with one line that names the key, the value and the nearest valid choice. A key that has been
    renamed is understood, with a `RenamedKey` warning.
    """
    name = address_of(source) if callable(source) else str(source)
    tree, notes = read_source(name)
    overrides = overrides or ()
    changes = tree.pop(WITHOUT_GPU, {})
    if not isinstance(changes, dict):
        raise UserError(f"{name}: {WITHOUT_GPU} must hold sections such as `network:`, not {changes!r}")
    if changes and without_gpu(tree, overrides):
        tree = merged(tree, changes)
        listed = ", ".join(f"{path}={value}" for path, value in flat(changes).items())
        warnings.warn(f"no GPU: {name} uses its settings for a CPU: {listed}", WithoutGpu, stacklevel=2)
    return overridden(tree, overrides, name, notes)


def without_gpu(tree: dict[str, Any], overrides: Sequence[str]) -> bool:
    """Return whether the learner would compute on a CPU."""
    device = tree.get("learner", {}).get("device", "auto")
    for change in overrides:
        device = change.removeprefix("learner.device=") if change.startswith("learner.device=") else device
    return not has_gpu() if device == "auto" else device == "cpu"


def address_of(made: Callable[..., Any]) -> str:
    """Return `module:attribute` of a class or function, or `__main__:NAME` where other processes cannot import it."""
    name: str = getattr(made, "__qualname__", "")
    module: str = getattr(made, "__module__", "")
    if module == "__main__":
        main = sys.modules["__main__"]
        module = main.__spec__.name if main.__spec__ else ""  # has a name if it was started by `python -m`
    importable = getattr(sys.modules.get(module), name, None) is made
    return f"{module}:{name}" if importable else session.name_of(made)


def override(config: Config, overrides: Sequence[str]) -> Config:
    """Return a copy of a configuration with overrides on top; raises and warns as `load_config` does."""
    return overridden(config.model_dump(), overrides, "the configuration", [])


def overridden(tree: dict[str, Any], overrides: Sequence[str], source: str, notes: list[str]) -> Config:
    for override in overrides:
        path, separator, text = override.partition("=")
        if not separator or not path:
            raise UserError(f"{override!r} is not an override; write section.key=value, such as run.seed=3")
        try:
            assign(tree, path, plain_yaml.parse(text) if text else "")
        except yaml.YAMLError:
            raise UserError(f"{shortened(override)!r}: {shortened(text)!r} is not a YAML value; quote it?") from None
        tree, more = rename_keys(tree, defaults())  # at once, so that the last override wins under either name
        notes += more
    for note in notes:
        warnings.warn(note, RenamedKey, stacklevel=3)
    return validate(tree, source)


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def validate(tree: dict[str, Any], source: str = "the configuration") -> Config:
    """Make a configuration from plain data, such as a checkpoint's. Raises `UserError` with one line."""
    try:
        return Config.model_validate(rename_keys(tree, defaults())[0])
    except ValidationError as error:
        raise UserError(f"{source}: {explain_validation_error(error, Config)}") from None


def recorded(tree: dict[str, Any], source: str = "the recorded configuration") -> Config:
    """Make the configuration of an earlier run. Features that it does not name did not exist then, and stay off."""
    return validate(merged(BEFORE_0_2, tree), source)


def defaults() -> dict[str, Any]:
    return Config().model_dump()


def read_source(source: str, children: tuple[str, ...] = ()) -> tuple[dict[str, Any], list[str]]:
    """Return the plain data of a preset, a file or a Gymnasium id, and notes on renamed keys.

    A file with `base: NAME` builds on another one. `children` are the files that build on this one.
    """
    if source in children:
        raise UserError(f"base: {' -> '.join([*children, source])} leads back to itself")
    if source in preset_names() or source.endswith((".yaml", ".yml")):
        tree = read_yaml(PRESETS / f"{source}.yaml" if source in preset_names() else Path(source))
        if XINGTIAN_KEYS & tree.keys():
            raise UserError(f"{source} is a XingTian file; `pronk convert {source} > mine.yaml` converts it")
        if "sweep" in tree:
            raise UserError(f"{source} describes many runs; `pronk sweep {source}` runs them")
        if "population" in tree:
            raise UserError(f"{source} describes a population; `pronk population {source}` trains it")
        tree, notes = rename_keys(tree, defaults())
        if "base" not in tree:
            return tree, notes
        base, more = read_source(str(tree.pop("base")), (*children, source))
        return merged(base, tree), notes + more
    if hint := python_file_hint(source):
        raise UserError(hint)
    if re.search(r"-v\d+$", source) or ":" in source:
        tree = {"env": {"id": source}}
        if source.startswith(ATARI_IDS):
            tree[WITHOUT_GPU] = {"env": {"atari": {"size": SMALL_FRAME}}}
        return tree, []
    if source and Path(source).is_dir():
        raise UserError(f"{source} is a directory, not a preset or a YAML file; to continue a run, resume it")
    raise UserError(
        f"no preset {source!r}{nearest(source, preset_names())}; there are {', '.join(preset_names())}. "
        "A Gymnasium id (Acrobot-v1), a YAML file (my.yaml) or an environment of your own (module:Class) also works"
    )


def python_file_hint(source: str) -> str | None:
    """Return how to name an environment in a Python file that was named itself: `foo.py`, `foo.py:Maze` or `foo`."""
    name, _, attribute = source.partition(":")
    is_file = name.endswith(".py")
    path = Path(name if is_file else f"{name}.py")
    if not is_file and (attribute or not path.is_file()):
        return None
    module = ".".join(path.with_suffix("").parts).strip("./")
    if not path.is_file():
        return f"no such file: {name}; an environment of your own is written module:Class, such as {module}:MyEnv"
    wanted = attribute or next(iter(classes_in(path)), "MyEnv")
    return f"{source} is a Python file; name the module and the class or function in it: {module}:{wanted}"


def classes_in(path: Path) -> list[str]:
    """Return the names of the classes in a Python file, those derived from something called Env first."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SyntaxError):
        return []
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [node.name for node in sorted(classes, key=lambda node: not any("Env" in ast.dump(b) for b in node.bases))]


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file."""
    try:
        tree = plain_yaml.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if tree is None:
        raise UserError(f"{path} is empty; it should hold sections such as `env:` and `run:`")
    if not isinstance(tree, dict):
        raise UserError(f"{path} must hold sections such as `env:` and `run:`, not {type(tree).__name__}")
    return tree
