"""Reads a configuration: a preset, a YAML file or a Gymnasium id, then `section.key=value` overrides, then validation.

`pronk show` prints the result, which is itself a valid file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pronk.config import plain_yaml
from pronk.config.config import Config, assign
from pronk.config.errors import explain_validation_error, nearest
from pronk.types import UserError

PRESETS = Path(__file__).parent / "presets"
FOREIGN_KEYS = {"alg_para", "env_para", "agent_para", "model_para"}  # of XingTian's files; see xingtian.py


def preset_names() -> list[str]:
    """The presets that come with Pronk."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_config(source: str | Path, overrides: list[str] | None = None) -> Config:
    """A preset, a YAML file or a Gymnasium id, with `section.key=value` overrides on top."""
    tree = read_source(str(source))
    for override in overrides or []:
        path, separator, text = override.partition("=")
        if not separator or not path:
            raise UserError(f"{override!r} is not an override; write section.key=value, such as run.seed=3")
        try:
            assign(tree, path, plain_yaml.parse(text) if text else "")
        except yaml.YAMLError:
            raise UserError(f"{override!r}: {text!r} is not a YAML value; quote it?") from None
    return validate(tree, str(source))


def validate(tree: dict[str, Any], source: str = "the configuration") -> Config:
    """A configuration from plain data, with mistakes explained in one line."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise UserError(f"{source}: {explain_validation_error(error, Config)}") from None


def read_source(source: str, heirs: tuple[str, ...] = ()) -> dict[str, Any]:
    """The plain data of a preset, a YAML file, or the defaults for a Gymnasium id. `base: NAME` in a file builds on
    another one; `heirs` are those that build on this one."""
    if source in heirs:
        raise UserError(f"base: {' -> '.join([*heirs, source])} leads back to itself")
    if source in preset_names() or source.endswith((".yaml", ".yml")):
        tree = read_yaml(PRESETS / f"{source}.yaml" if source in preset_names() else Path(source))
        if FOREIGN_KEYS & tree.keys():
            raise UserError(f"{source} is a XingTian file; make it a Pronk one: pronk convert {source} --out mine.yaml")
        if "base" not in tree:
            return tree
        return merged(read_source(str(tree.pop("base")), (*heirs, source)), tree)
    if re.search(r"-v\d+$", source) or ":" in source:
        return {"env": {"id": source}}
    if source and Path(source).is_dir():
        raise UserError(f"{source} is a directory; to go on with a run: pronk train {source} --resume")
    raise UserError(
        f"no preset {source!r}{nearest(source, preset_names())}; `pronk presets` lists them. "
        "A Gymnasium id (Acrobot-v1) or a YAML file (my.yaml) also works"
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
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


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` on top, section by section."""
    both = {key for key in changes if isinstance(changes[key], dict) and isinstance(base.get(key), dict)}
    return {**base, **changes, **{key: merged(base[key], changes[key]) for key in both}}
