"""A sweep file, and the runs it stands for. Nothing here starts or writes anything.

    base: cartpole                               # a preset, a Gymnasium id or a file
    run: {total_steps: 200_000}                  # settings of all members, in the usual sections
    sweep:
      grid: {optimiser.learning_rate: [1e-3, 3e-3], network.core: [none, lstm]}     # every combination
      list: [{loss.name: impala}, {loss.name: appo, learner.passes: 4}]             # each with every combination
      seeds: 3

A *member* is one run: settings and a seed. Members that differ only by seed are a group.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ValidationError, model_validator

from pronk.config import Config, load_config, read_yaml, resolve
from pronk.config.errors import explain_validation_error, nearest
from pronk.config.loading import XINGTIAN_KEYS, overridden
from pronk.config.resolved import check_resolved
from pronk.config.section import Auto, Positive, Section
from pronk.config.trees import flat
from pronk.runs.directory import plain_name
from pronk.types import UserError

Settings = dict[str, Any]
"""`section.key` -> value."""
LONGEST_NAME = 120  # characters of a member's directory
SEED = "run.seed"
RANGE_KEYS = ("low", "high", "log", "choices")
UNCLEAR = ("count", "id", "threads", "enabled", "size")  # last words of keys that say little without the section


def check_grid(value: Any) -> Any:
    """Raise ValueError unless it is {section.key: [values]}."""
    for key, values in check_settings(value).items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{key} must be a list of values, got {values!r}")
        twice = [text for text, count in Counter(map(as_text, values)).items() if count > 1]
        if twice:
            raise ValueError(f"{key} lists {twice[0]} twice")
    return value


def check_list(value: Any) -> Any:
    """Raise ValueError unless it is [{section.key: value}, ...]."""
    if not isinstance(value, list):
        raise ValueError(f"expected a list of settings such as [{{loss.name: appo}}], got {value!r}")
    for entry in value:
        check_settings(entry)
    twice = [text for text, count in Counter(map(as_text, value)).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]} is listed twice")
    return value


def check_search(value: Any) -> Any:
    """Raise ValueError unless it is {section.key: {low, high, log} or {choices}}."""
    for key, given in check_settings(value).items():
        check_range(key, given)
    return value


def check_range(key: str, given: Any) -> None:
    example = "{low: 1e-4, high: 1e-2, log: true} or {choices: [a, b]}"
    if not isinstance(given, dict):
        raise ValueError(f"{key} must be {example}, got {given!r}")
    for word in given:
        if word not in RANGE_KEYS:
            raise ValueError(f"{key}: unknown key {word!r}{nearest(str(word), RANGE_KEYS)}; valid: {example}")
    if "choices" in given:
        if len(given) > 1 or not isinstance(given["choices"], list) or not given["choices"]:
            raise ValueError(f"{key} must be {example}, got {given!r}")
        return
    low, high, log = (given.get(word, False) for word in ("low", "high", "log"))
    numbers = [type(bound) in (int, float) for bound in (low, high)]
    if not all(numbers) or not isinstance(log, bool):
        raise ValueError(f"{key} must be {example}, got {given!r}")
    if not low < high:
        raise ValueError(f"{key}: low ({low}) must be below high ({high})")
    if log and low <= 0:
        raise ValueError(f"{key}: with log, low must be above 0, got {low}")


def check_settings(value: Any) -> Settings:
    if not isinstance(value, dict):
        raise ValueError(f"expected settings such as optimiser.learning_rate, got {value!r}")
    for key in value:
        if key == SEED:
            raise ValueError("run.seed is set by sweep.seeds")
        if not isinstance(key, str):
            raise ValueError(f"{key!r} is not a setting; write section.key")
    return value


def check_seeds(value: Any) -> Any:
    """Turn a count into a list of seeds."""
    if type(value) is int and value > 0:
        return [*range(1, value + 1)]
    fits = isinstance(value, list) and value and all(type(seed) is int and seed >= 0 for seed in value)
    if not fits or len(set(value)) < len(value):
        raise ValueError(f"must be a count, or a list of different seeds such as [1, 2, 3], got {value!r}")
    return value


Grid = Annotated[dict[str, list[Any]], BeforeValidator(check_grid)]
Entries = Annotated[list[Settings], BeforeValidator(check_list)]
Ranges = Annotated[dict[str, dict[str, Any]], BeforeValidator(check_search)]
Seeds = Annotated[list[int] | None, BeforeValidator(check_seeds)]


class Options(Section):
    """The section `sweep` of a sweep file."""

    grid: Grid = {}  # noqa: RUF012 - pydantic copies mutable defaults
    """`section.key` -> values. Every combination is a member."""
    search: Ranges = {}  # noqa: RUF012
    """`section.key` -> {low, high, log} or {choices}: Optuna proposes values. Needs `pip install 'pronk[sweep]'`."""
    trials: Positive | None = None
    """How many settings the search tries."""
    sampler: Literal["tpe", "random", "qmc", "cmaes", "gp"] = "tpe"
    """Optuna's, that proposes the next settings."""
    pruner: Literal["none", "median", "halving", "hyperband"] = "none"
    """Optuna's, that ends trials early which fall behind."""
    seeds: Seeds = None
    """Seeds of every member, or how many: 3 is [1, 2, 3]. null (default): the base's own run.seed."""
    at_a_time: Positive | Auto = "auto"
    """Members that run at the same time. `auto`: as many as keep the cores busy."""
    metric: Literal["episode_return", "evaluation"] = "episode_return"
    """What counts: the mean return of the latest episodes, or the last evaluation's (turns evaluation.enabled on)."""
    retry: Literal["never", "failed"] = "never"
    """`failed`: a sweep that is continued runs its failed members again."""
    list: Entries = []  # noqa: RUF012 - last, because it hides the built-in name in this class
    """Settings side by side. Each entry is combined with every combination of `grid`."""

    @model_validator(mode="after")
    def _check_together(self) -> Options:
        if self.search and (self.grid or self.list):
            raise ValueError("search cannot be combined with grid or list; write their values as choices of the search")
        if self.search and self.trials is None:
            raise ValueError("trials is missing: how many settings the search tries")
        if self.trials is not None and not self.search:
            raise ValueError("trials needs search: the settings to search over")
        both = sorted(set(self.grid) & {key for entry in self.list for key in entry})
        if both:
            raise ValueError(f"{both[0]} is in grid and in list; keep it in one of them")
        return self


class Document(Section):
    """What is validated of a sweep file as a whole, so that messages name `sweep.KEY`."""

    sweep: Options = Options()


class Parsed(NamedTuple):
    """The content of a file that stands for many runs."""

    options: Any
    base: str | None
    fixed: Settings


@dataclass(frozen=True)
class Member:
    """One run of a sweep."""

    name: str
    """Of its directory, below that of the sweep."""
    settings: Settings
    """What is swept over, without the seed."""
    seed: int
    config: Config
    trial: int | None = None
    """The number of the search's trial that it belongs to."""
    resumes_with: tuple[str, ...] = ()
    """Settings to change when it is continued, as on the command line."""
    needs_shared_disk: bool = False
    """Whether it can only run where its directory is."""

    @property
    def label(self) -> str:
        """`learning_rate=0.001, core=lstm`: the same for all seeds."""
        return ", ".join(f"{word}={as_text(self.settings[key])}" for key, word in short_words(self.settings).items())


@dataclass(frozen=True)
class Sweep:
    """A sweep file, validated."""

    name: str
    """Of the file, without its ending."""
    base: str | None
    fixed: Settings
    """Of all members, on top of the base."""
    options: Options

    def members(self) -> list[Member]:
        """Return every member in order, seeds last; empty if a search proposes them.

        Raises `UserError` for settings that are not valid.
        """
        if self.options.search:
            return []
        return self._named([(settings, seed) for settings in combinations(self.options) for seed in self.seeds])

    def of_trial(self, number: int, settings: Settings) -> list[Member]:
        """Return the members of a search's trial: one for each seed."""
        seeds = self.seeds
        names = [f"trial-{number:03d}" + (f",seed={seed}" if len(seeds) > 1 else "") for seed in seeds]
        return [
            Member(name, settings, seed, self.config_of(settings, seed), number)
            for name, seed in zip(names, seeds, strict=True)
        ]

    @property
    def seeds(self) -> list[int]:
        """Return the seed of each member of a group."""
        return self.options.seeds or [self.config_of({}).run.seed]

    def config_of(self, settings: Settings, seed: int | None = None) -> Config:
        """Return the configuration of a member. Raises `UserError` with one line."""
        changes = self.fixed | settings | ({} if seed is None else {SEED: seed})
        if self.options.metric == "evaluation":
            changes["evaluation.enabled"] = True
        return config_from(self.base, changes, self.name)

    def check(self) -> None:
        """Raise `UserError` for the first mistake in any member, or at either end of what is searched."""
        for settings in corners(self.options):
            config = self.config_of(settings)
            if config.cluster.name == "local" and config.learners.count in ("auto", 1):
                check_resolved(resolve(config))

    def _named(self, found: Sequence[tuple[Settings, int]]) -> list[Member]:
        names = [self._name(settings, seed) for settings, seed in found]
        count = Counter(names)
        unique = [
            name if count[name] == 1 else f"{name},{digest([settings, seed])}"
            for name, (settings, seed) in zip(names, found, strict=True)
        ]
        return [
            Member(name, settings, seed, self.config_of(settings, seed))
            for name, (settings, seed) in zip(unique, found, strict=True)
        ]

    def _name(self, settings: Settings, seed: int) -> str:
        words = short_words(settings)
        parts = [f"{word}={plain(as_text(settings[key]))}" for key, word in words.items()]
        tail = [f"seed={seed}"] if self.options.seeds or not parts else []
        name = ",".join(parts + tail)
        if len(name) <= LONGEST_NAME:
            return name
        rest = ",".join([digest(settings), *tail])
        return f"{name[: LONGEST_NAME - len(rest) - 1]},{rest}"


def config_from(base: str | None, changes: Settings, name: str) -> Config:
    """Return a base with changes. Raises `UserError` with one line that begins with `name`."""
    overrides = as_overrides(changes)
    try:
        return load_config(base, overrides) if base else overridden({}, overrides, name, [])
    except UserError as error:
        raise UserError(f"{name}: {str(error).removeprefix(f'{base}: ')}") from None


def as_overrides(changes: Settings) -> list[str]:
    """Return settings as on the command line."""
    return [f"{key}={json.dumps(value, default=str)}" for key, value in changes.items()]


def read_sweep(file: Path) -> Sweep:
    """Read a sweep file, and check every setting in it. Raises `UserError` with one line."""
    return parse_sweep(read_yaml(file), plain_name(file.name), str(file))


def parse_sweep(tree: dict[str, Any], name: str, source: str) -> Sweep:
    """Make a sweep from the content of its file; `source` is what messages call it."""
    options, base, fixed = parse_file(tree, "sweep", Document, source)
    if SEED in fixed and options.seeds:
        raise UserError(f"{source}: run.seed={fixed[SEED]!r} and sweep.seeds={options.seeds!r}; keep one of them")
    sweep = Sweep(name, base, fixed, options)
    sweep.check()
    return sweep


def parse_file(tree: dict[str, Any], section: str, document: type[Section], source: str) -> Parsed:
    """Split the content of a file into the options of its `section` (a field of `document`) and the settings of runs.

    Raises `UserError` with one line.
    """
    if XINGTIAN_KEYS & tree.keys():
        raise UserError(f"{source} is a XingTian file; `pronk convert {source} > mine.yaml` converts it")
    if section not in tree:
        raise UserError(
            f"{source} has no section `{section}`{nearest(section, map(str, tree))}; `pronk train {source}` trains one "
            "run"
        )
    try:
        options = getattr(document.model_validate({section: tree[section]}), section)
    except ValidationError as error:
        raise UserError(f"{source}: {explain_validation_error(error, document)}") from None
    base = tree.get("base")
    fixed = flat({key: value for key, value in tree.items() if key not in ("base", section)})
    if base is None and not {"env", "env.id", "env.tasks"} & fixed.keys():
        raise UserError(f"{source}: base is missing: a preset, a Gymnasium id or a YAML file to build on")
    return Parsed(options, None if base is None else str(base), fixed)


def combinations(options: Options) -> list[Settings]:
    """Return the settings of every group: each entry of `list` with every combination of `grid`."""
    grids = [dict(zip(options.grid, values, strict=True)) for values in itertools.product(*options.grid.values())]
    return [entry | grid for entry in options.list or [{}] for grid in grids]


def corners(options: Options) -> list[Settings]:
    """Return settings that show every mistake: all groups, or of a search both ends of each range and all choices."""
    if not options.search:
        return combinations(options)
    found: list[Settings] = []
    first = {key: given.get("low", (given.get("choices") or [None])[0]) for key, given in options.search.items()}
    for key, given in options.search.items():
        found += [first | {key: value} for value in given.get("choices") or [given["low"], given["high"]]]
    return found


def short_words(settings: Settings) -> dict[str, str]:
    """Key -> the shortest clear name: `optimiser.learning_rate` -> `learning_rate`, `loss.name` -> `loss`."""
    words = {key: key.removesuffix(".name").rpartition(".")[2] for key in settings}
    count = Counter(words.values())
    return {key: word if count[word] == 1 and word not in UNCLEAR else key for key, word in words.items()}


def as_text(value: Any) -> str:
    """Return a value as it would be written in YAML."""
    return value if isinstance(value, str) else json.dumps(value, default=str, separators=(",", ":"))


def plain(text: str) -> str:
    """Return text without characters that a file system or a shell treats specially."""
    return re.sub(r"[^\w.+-]+", "-", text, flags=re.ASCII).strip("-") or "-"


def digest(value: Any) -> str:
    """Return eight characters that stand for a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]
