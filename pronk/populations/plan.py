"""A population file, and the first settings of its members. Nothing here starts or writes anything.

base: cartpole                               # a preset, a Gymnasium id or a file
run: {total_steps: 2_000_000}                # of each member
population:
  size: 8
  priors:                                    # where the first values are drawn from
    optimiser.learning_rate: {low: 1e-5, high: 1e-2, log: true}
    loss.entropy_cost: {low: 1e-4, high: 1e-1, log: true}
    optimiser.epsilon: {start: [1e-1, 1e-3, 1e-5, 1e-7]}
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from pronk.config import Config, read_yaml, resolve
from pronk.config.resolved import check_resolved
from pronk.config.section import Auto, Fraction, NonNegative, Positive, Section
from pronk.envs.base import games_of
from pronk.evaluation.atari_scores import references
from pronk.populations.rules import Prior, Rules, Settings, draw
from pronk.runs.directory import plain_name
from pronk.seeding import population_seed
from pronk.sweeps.expand import check_range, config_from, parse_file
from pronk.types import UserError

SECTIONS = ("loss", "optimiser", "learner", "replay")  # whose keys may differ between members that share weights
SHARED_KEYS = ("optimiser.name", "learner.device")  # but for these
READY_PART, READY_STEPS = 20, 100_000
BURN_IN_PART = 10


def check_priors(value: Any) -> Any:
    """Raise ValueError unless it is {section.key: {low, high, log}, {choices} or {start}}."""
    if not isinstance(value, dict) or not value:
        raise ValueError(f"expected {{optimiser.learning_rate: {{low: 1e-4, high: 1e-2, log: true}}}}, got {value!r}")
    for key, given in value.items():
        section = str(key).partition(".")[0]
        if section not in SECTIONS or key in SHARED_KEYS or "." not in str(key):
            raise ValueError(
                f"{key} cannot differ between members that copy one another's weights; keys of {', '.join(SECTIONS)} "
                f"can, except {' and '.join(SHARED_KEYS)}"
            )
        check_prior(key, given)
    return value


def check_prior(key: str, given: Any) -> None:
    if not isinstance(given, dict) or "start" not in given:
        return check_range(key, given)
    numbers = isinstance(given["start"], list) and [type(value) for value in given["start"]]
    if len(given) > 1 or not numbers or not {*numbers} <= {int, float}:
        raise ValueError(f"{key} must be {{start: [1e-3, 1e-4]}}, a list of numbers, got {given!r}")


def check_scale(value: Any) -> Any:
    """Raise ValueError unless it is [low, high]; leave other types to the field."""
    if isinstance(value, list) and not (
        len(value) == 2 and all(type(end) in (int, float) for end in value) and value[0] < value[1]
    ):
        raise ValueError(f"must be the returns that count as 0 and as 1, such as [0, 500], got {value!r}")
    return value


class Options(Section):
    """The section `population` of a population file."""

    priors: Annotated[dict[str, Prior], BeforeValidator(check_priors)]
    """`section.key` -> {low, high} or {low, high, log: true}: uniform or log-uniform; {start: [...]}: one of these
    numbers; {choices: [...]}: one of these values, also later, when a member moves to a neighbour in the list."""
    size: Annotated[int, Field(ge=2, le=1000)] = 8
    """How many members (the paper: 24)."""
    ready_steps: Positive | Auto = "auto"
    """Environment steps of a round, after which members are compared. `auto`: a twentieth of run.total_steps, and at
    least 100,000, because each round starts every member anew, which takes a few seconds."""
    burn_in_steps: Annotated[int, Field(ge=0)] | Auto = "auto"
    """Environment steps before the first copy or change (the paper: 5 million). `auto`: a tenth of run.total_steps."""
    metric: Literal["auto", "episode_return", "evaluation", "human_normalised_capped"] = "auto"
    """The fitness: the mean return of the latest episodes; the last evaluation's (turns evaluation.enabled on); or the
    mean human-normalised score of several Atari games (env.tasks), each at most 1, as in the paper. `auto`: the last of
    these for several Atari games, elsewhere the first."""
    scale: Annotated[list[float] | Auto, BeforeValidator(check_scale)] = "auto"
    """The returns that count as 0 and as 1, for `margin`. `auto`: random play and a human in Atari games that have such
    scores; elsewhere the lowest and the highest return that the population has seen so far."""
    margin: NonNegative = 0.05
    """By how much a member must be better to be copied, on the scale (the paper: 5% absolute)."""
    partner: Literal["better", "any"] = "better"
    """Copy a random one of the members that are better; or compare with a random one of all, which copies less often
    in a small population."""
    perturb_probability: Fraction = 0.33
    """Of a change, for each setting of each member after each round (the paper: 33%)."""
    perturb_factor: Annotated[float, Field(gt=1, le=10)] = 1.2
    """By which a setting is multiplied or divided (the paper: 1.2)."""
    at_a_time: Positive | Auto = "auto"
    """Members that train at the same time. `auto`: as many as keep the cores busy."""


class Document(Section):
    """What is validated of a population file as a whole, so that messages name `population.KEY`."""

    population: Options


@dataclass(frozen=True)
class Population:
    """A population file, validated."""

    name: str
    """Of the file, without its ending."""
    base: str | None
    fixed: Settings
    """Of all members, on top of the base."""
    options: Options

    @cached_property
    def config(self) -> Config:
        """What all members have in common."""
        return self.config_of({})

    @property
    def rules(self) -> Rules:
        one = self.options
        return Rules(one.priors, one.margin, one.partner, one.perturb_probability, one.perturb_factor)

    @cached_property
    def metric(self) -> str:
        """What members are compared by: `evaluation`, or a column of metrics.jsonl."""
        if self.options.metric != "auto":
            return self.options.metric
        env = self.config.env
        has_scores = bool(env.tasks) and any(game in references() for game in games_of(env))
        return "human_normalised_capped" if has_scores else "episode_return"

    @property
    def total_steps(self) -> int:
        return self.config.run.total_steps

    @property
    def ready_steps(self) -> int:
        """Environment steps of a round."""
        if self.options.ready_steps != "auto":
            return self.options.ready_steps
        return max(self.total_steps // READY_PART, READY_STEPS)

    @property
    def burn_in_steps(self) -> int:
        """Environment steps before the first copy or change."""
        return self.total_steps // BURN_IN_PART if self.options.burn_in_steps == "auto" else self.options.burn_in_steps

    @property
    def names(self) -> list[str]:
        """Return the directory of each member, below that of the population."""
        return [f"member-{number:02d}" for number in range(self.options.size)]

    def seed_of(self, member: int) -> int:
        """Return run.seed of a member: consecutive numbers from that of the base."""
        return self.config.run.seed + member

    def chance_of(self, number: int, member: int) -> np.random.Generator:
        """Return the generator of a member's settings for a round. The same at every call, also after a resume."""
        return np.random.default_rng(population_seed(self.config.run.seed, number, member))

    def first_settings(self) -> list[Settings]:
        """Draw the settings of every member for the first round."""
        chances = [self.chance_of(0, member) for member in range(self.options.size)]
        return [{key: draw(prior, chance) for key, prior in self.options.priors.items()} for chance in chances]

    def config_of(self, settings: Settings) -> Config:
        """Return the configuration of a member. Raises `UserError` with one line."""
        changes = self.fixed | settings
        if self.options.metric == "evaluation":
            changes["evaluation.enabled"] = True
        return config_from(self.base, changes, self.name)

    def is_valid(self, settings: Settings) -> bool:
        """Whether settings make a valid run."""
        try:
            self.check_settings(settings)
        except UserError:
            return False
        return True

    def check_settings(self, settings: Settings) -> None:
        config = self.config_of(settings)
        if config.cluster.name == "local" and config.learners.count in ("auto", 1):
            check_resolved(resolve(config))

    def check(self) -> None:
        """Raise `UserError` for the first mistake in the base, or at either end of a prior."""
        if self.config.run.total_seconds is not None:
            raise UserError(f"{self.name}: run.total_seconds has no meaning in a population; set run.total_steps")
        first = {key: values_of(prior)[0] for key, prior in self.options.priors.items()}
        for key, prior in self.options.priors.items():
            for value in values_of(prior):
                self.check_settings(first | {key: value})


def values_of(prior: Prior) -> list[Any]:
    """Return the values that show every mistake: both ends of a range, or all of a list."""
    return prior.get("choices") or prior.get("start") or [prior["low"], prior["high"]]


def read_population(file: Path) -> Population:
    """Read a population file, and check every setting in it. Raises `UserError` with one line."""
    return parse_population(read_yaml(file), plain_name(file.name), str(file))


def parse_population(tree: dict[str, Any], name: str, source: str) -> Population:
    """Make a population from the content of its file; `source` is what messages call it."""
    options, base, fixed = parse_file(tree, "population", Document, source)
    population = Population(name, base, fixed, options)
    population.check()
    return population
