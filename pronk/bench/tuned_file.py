"""The YAML file that `pronk bench --tune` writes: a base, the changed keys, and where the figures come from."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from typing import Any

from pronk.bench.tuning import GOOD, Measured, Tuning
from pronk.config import plain_yaml
from pronk.config.machine import cpu_name
from pronk.config.trees import assign


def tree_of(overrides: Iterable[str]) -> dict[str, Any]:
    """Return `section.key=value`s as plain data. They are valid: a configuration was made with them."""
    tree: dict[str, Any] = {}
    for override in overrides:
        path, _, text = override.partition("=")
        assign(tree, path, plain_yaml.parse(text) if text else "")
    return tree


def tuned_yaml(tuning: Tuning, base: str, overrides: Iterable[str], version: str) -> str:
    """Return the text of the file.

    Args:
        tuning: what was measured.
        base: the preset, file or Gymnasium id.
        overrides: `section.key=value`s that were given on top.
        version: of Pronk.
    """
    tree = {"base": base, **tree_of(overrides)}
    for key, value in tuning.changes.items():
        assign(tree, key, value)
    return "".join(f"# {line}\n" for line in header(tuning, base, version)) + plain_yaml.dump(tree)


def header(tuning: Tuning, base: str, version: str) -> list[str]:
    """Return the lines above the settings."""
    machine = f"{tuning.cores} cores ({cpu_name()}), {platform.system()} {platform.machine()}"
    lines = [
        f"Written by `pronk bench {base} --tune` on {time.strftime('%Y-%m-%d')}, Pronk {version}.",
        f"Machine: {machine}. Settings that suit another machine may differ.",
        f"default    {figures(tuning.default)}",
    ]
    if tuning.chosen is not tuning.default:
        lines.append(f"this file  {figures(tuning.chosen)}, {tuning.ratio(tuning.chosen):.2f} times the default")
    return [*lines, verdict(tuning)]


def figures(one: Measured) -> str:
    low, high = one.spread
    return f"{one.setting}: {one.rate:,.0f} steps/s ({low:,.0f} to {high:,.0f}), policy lag {one.lag:.1f}"


def verdict(tuning: Tuning) -> str:
    """Say how the default compares with the best setting."""
    share = tuning.default_of_best
    if tuning.chosen is tuning.default:
        return "The default is as fast as anything that was tried."
    what = "within" if share >= GOOD else "not within"
    return f"The default reaches {share:.0%} of the best setting's speed: {what} {1 - GOOD:.0%} of it."
