"""Converts `use_pbt` and `pbt_config` of a XingTian file to the section `population` of `pronk population`.

XingTian copies from the best fifth to the worst fifth; Pronk's rules are those of the IMPALA paper. What differs is in
the notes.
"""

from __future__ import annotations

from typing import Any

from pronk.config.errors import shown
from pronk.config.trees import flat
from pronk.types import UserError

SETTINGS = {
    "LR": "optimiser.learning_rate",
    "ENTROPY_LOSS": "loss.entropy_cost",
    "GAMMA": "loss.discount",
    "grad_norm_clip": "optimiser.max_gradient_norm",
}
METRICS = ("mean_episodic_reward", "episodic_reward_mean")
INTERVAL = 50_000  # XingTian's default
DIFFERENT = {
    "top_rate": "no counterpart: a member copies one that is better by more than population.margin",
    "resample_probability": "no counterpart: a value moves by a factor, or to its neighbour in a list",
    "complete_episode": "no counterpart: a population ends by run.total_steps or run.stop_return",
}


def without_population(tree: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the file without its population, and the content of pbt_config if it is in use, else None."""
    rest = {key: value for key, value in tree.items() if key not in ("use_pbt", "pbt_config")}
    return rest, tree.get("pbt_config") or {} if tree.get("use_pbt") else None


def convert_population(given: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the section `population`, and notes for the user. Raises UserError for what cannot be converted."""
    if not isinstance(given, dict):
        raise UserError(f"pbt_config must hold keys such as population_size, got {given!r}")
    left = dict(given)
    size, interval = left.pop("population_size", None), left.pop("pbt_interval", INTERVAL)
    for name, value, least in (("population_size", size, 2), ("pbt_interval", interval, 1)):
        if type(value) is not int or value < least:
            raise UserError(f"pbt_config.{name} must be an integer of at least {least}, got {value!r}")
    if left.pop("metric_type", "max") != "max":
        raise UserError("pbt_config.metric_type: only max can be converted: a higher return is better")
    priors, notes = convert_mutations(left.pop("hyperparameters_mutations", None))
    options: dict[str, Any] = {"size": size, "ready_steps": interval, "burn_in_steps": 0, "priors": priors}
    if (delta := left.pop("perturb_factor_delta", None)) is not None:
        if type(delta) not in (int, float) or not 0 < delta < 1:
            raise UserError(f"pbt_config.perturb_factor_delta must be a number between 0 and 1, got {shown(delta)}")
        options["perturb_factor"] = 1 + delta
        notes.append(f"pbt_config.perturb_factor_delta: times {1 - delta:g} there is divided by {1 + delta:g} here")
    if (metric := left.pop("metric_key", METRICS[0])) not in METRICS:
        notes.append(f"pbt_config.metric_key: {metric} has no counterpart: population.metric=episode_return is used")
    for path in flat(left):
        notes.append(f"pbt_config.{path}: {DIFFERENT.get(path, 'unknown, left out')}")
    return options, notes


def convert_mutations(given: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the priors: a list of values, or {min, max}, for each setting that has a counterpart."""
    path = "pbt_config.hyperparameters_mutations"
    if not isinstance(given, dict) or not given:
        raise UserError(f"{path} must hold lists of values such as LR: [0.001, 0.0003], got {given!r}")
    priors: dict[str, Any] = {}
    notes = [f"{path}: first values are drawn from these; there, all members begin with those of the file"]
    for name, values in given.items():
        if name not in SETTINGS:
            notes.append(f"{path}.{name}: no counterpart; one of {', '.join(SETTINGS)} can change")
        elif isinstance(values, list) and values:
            priors[SETTINGS[name]] = {"choices": values}
        elif isinstance(values, dict) and values.keys() == {"min", "max"}:
            priors[SETTINGS[name]] = {"low": values["min"], "high": values["max"]}
        else:
            raise UserError(f"{path}.{name} must be a list of values or {{min, max}}, got {values!r}")
    if not priors:
        raise UserError(f"{path}: none of {', '.join(map(str, given))} can be converted; {', '.join(SETTINGS)} can")
    return priors, notes
