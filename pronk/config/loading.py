"""Reads a configuration: a preset, a YAML file or a Gymnasium id, then `section.key=value` overrides, then validation.

`pronk show` prints the result, which is itself a valid file.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pronk.config import plain_yaml
from pronk.config.config import Config
from pronk.config.errors import explain_validation_error, nearest
from pronk.config.renamed import RenamedKey, rename_keys
from pronk.config.trees import assign, merged
from pronk.types import UserError

BEFORE_0_2 = {"network": {"normalise": False, "popart": False}, "env": {"wrappers": []}}
PRESETS = Path(__file__).parent / "presets"
XINGTIAN_KEYS = {"alg_para", "env_para", "agent_para", "model_para"}  # sections of XingTian's files; see xingtian.py


def preset_names() -> list[str]:
    """Return the names of the presets that come with Pronk."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_config(source: str | Path, overrides: list[str] | None = None) -> Config:
    """Load a preset, a YAML file or the defaults for a Gymnasium id, with overrides on top.

        config = load_config("cartpole", ["run.seed=3", "optimiser.learning_rate=3e-4"])

    Raises `UserError` with one line that names the key, the value and the nearest valid choice. A key that has been
    renamed is understood, with a `RenamedKey` warning.
    """
    tree, notes = read_source(str(source))
    return overridden(tree, overrides or [], str(source), notes)


def override(config: Config, overrides: list[str]) -> Config:
    """Return a copy of a configuration with overrides on top; raises and warns as `load_config` does."""
    return overridden(config.model_dump(), overrides, "the configuration", [])


def overridden(tree: dict[str, Any], overrides: list[str], source: str, notes: list[str]) -> Config:
    for override in overrides:
        path, separator, text = override.partition("=")
        if not separator or not path:
            raise UserError(f"{override!r} is not an override; write section.key=value, such as run.seed=3")
        try:
            assign(tree, path, plain_yaml.parse(text) if text else "")
        except yaml.YAMLError:
            raise UserError(f"{override!r}: {text!r} is not a YAML value; quote it?") from None
        tree, more = rename_keys(tree, defaults())  # at once, so that the last override wins under either name
        notes += more
    for note in notes:
        warnings.warn(note, RenamedKey, stacklevel=3)
    return validate(tree, source)


def validate(tree: dict[str, Any], source: str = "the configuration") -> Config:
    """Make a configuration from plain data, such as a checkpoint's. Raises `UserError` with one line."""
    try:
        return Config.model_validate(rename_keys(tree, defaults())[0])
    except ValidationError as error:
        raise UserError(f"{source}: {explain_validation_error(error, Config)}") from None


def recorded(tree: dict[str, Any], source: str = "the recorded configuration") -> Config:
    """Make the configuration of an earlier run. What it does not name did not exist then, so it stays off."""
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
            raise UserError(f"{source} is a XingTian file; turn it into a Pronk one with `pronk convert {source}`")
        tree, notes = rename_keys(tree, defaults())
        if "base" not in tree:
            return tree, notes
        base, more = read_source(str(tree.pop("base")), (*children, source))
        return merged(base, tree), notes + more
    if re.search(r"-v\d+$", source) or ":" in source:
        return {"env": {"id": source}}, []
    if source and Path(source).is_dir():
        raise UserError(f"{source} is a directory, not a preset or a YAML file; to continue a run, resume it")
    raise UserError(
        f"no preset {source!r}{nearest(source, preset_names())}; there are {', '.join(preset_names())}. "
        "A Gymnasium id (Acrobot-v1) or a YAML file (my.yaml) also works"
    )


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
