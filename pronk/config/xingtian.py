"""Converts a XingTian IMPALA YAML file, with a note on every key that has no counterpart.

XingTian's file has four parts (`alg_para`, `env_para`, `agent_para`, `model_para`), and the number of its explorers.
What it leaves out takes the defaults of XingTian's IMPALA where they are documented (learning rate, entropy, width,
discount), and Pronk's elsewhere. Keys of both spellings of the models are known: TensorFlow's and MindSpore's (..MS).
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pronk.config.config import Config
from pronk.config.errors import nearest, shown
from pronk.config.loading import XINGTIAN_KEYS, validate
from pronk.config.trees import assign, flat
from pronk.config.xingtian_population import convert_population, without_population
from pronk.types import UserError

ENVS_PER_ACTOR = 16  # to aim at: fewer processes with more environments each do the same work in less time
TOLERANCE = 0.1  # by how much the number of environments may differ, so that batches come out even

# Keys of XingTian's files that have no counterpart in Pronk, and why.
NO_COUNTERPART = {
    "alg_para.alg_config.train_per_checkpoint": "actors.sync_every sets how often actors fetch new weights",
    "alg_para.alg_config.save_model": "checkpoints are always saved; see the section `checkpoint`",
    "alg_para.alg_config.save_interval": "checkpoints go by time: checkpoint.every_seconds",
    "alg_para.alg_config.learning_starts": "replay begins with the first batch: replay.size",
    "alg_para.alg_config.process_num": "learners.count sets how many learn",
    "alg_para.alg_config.only_save_best_model": "the last few and the best are kept: checkpoint.keep",
    "agent_para.agent_name": "one actor serves all environments",
    "agent_para.agent_config.sync_model_interval": "it counts updates; actors.sync_every counts unrolls",
    "agent_para.agent_config.complete_episode": "a run ends by steps, time or return: run.total_steps, "
    "run.total_seconds, run.stop_return",
    "model_para.actor.state_dim": "the environment defines it",
    "model_para.actor.action_dim": "the environment defines it",
    "model_para.actor.input_dtype": "the environment defines it",
    "model_para.actor.default_dtype": "weights are float32",
    "model_para.actor.summary": "`pronk show` prints the configuration",
    "model_para.actor.max_to_keep": "checkpoint.keep counts checkpoints of the whole state",
    "model_para.actor.model_format": "checkpoints are PyTorch's",
    "env_para.env_info.vision": "training shows nothing; `pronk watch` shows the agent playing",
    "speedup": "processes are not pinned to cores; learner.threads and actors.count share them out",
    "start_core": "processes are not pinned to cores",
    "plasma_size": "unrolls travel through memory whose size follows from the configuration",
    "node_config": "`pronk launch` with a list of hosts instead, or `pronk learner` and `pronk actor`",
    "test_node_config": "the evaluator runs beside the learner: evaluation.enabled=true",
    "remote_env": "the other machines' own shells set it",
    "benchmark.id": "a run is named by its directory",
    "benchmark.archive_root": "runs are written to runs/, unless a run directory is given",
    "benchmark.log_interval_to_train": "run.log_every_seconds goes by time",
    "benchmark.eval.model_path": "`pronk eval RUN` plays a run's newest or best checkpoint",
    "benchmark.eval.gap": "evaluation.every_seconds goes by time",
    "benchmark.eval.evaluator_num": "one process evaluates",
    "benchmark.eval.model_divided_freq": "evaluation.episodes sets how many are played",
    "benchmark.eval.max_step_per_episode": "episodes are played to their end",
    "benchmark.eval.summary": "every evaluation is shown",
}
# XingTian's own defaults that its documentation lists.
DEFAULTS = {"LR": 3e-4, "ENTROPY_LOSS": 0.01, "HIDDEN_SIZE": 128, "NUM_LAYERS": 1, "GAMMA": 0.99}
ALGORITHMS = ("IMPALA", "IMPALAOpt")
ENVIRONMENTS = ("GymEnv", "AtariEnv", "VectorAtariEnv")
MODELS = ("ImpalaMlp", "ImpalaMlpZeus", "ImpalaCnn", "ImpalaCnnZeus", "ImpalaCnnOpt")
OPTIMISERS = {"adam": "adam", "rmsprop": "rmsprop_tf"}
OPT_CNN = {42: "compact", 84: "opt_cnn"}  # by the size of a frame
CASES = ("alg_para.alg_config.", "agent_para.agent_config.")  # sections in which a list is several values to try
MOST_LAYERS, MOST_CASES = 1000, 1000  # of an MLP; of a sweep
MOST_COUNTED = 10**15  # of anything: products of a few counts are still floating-point numbers
MOST_ROWS = 128  # that all its models except ImpalaCnnOpt learn from at once, whatever BATCH_SIZE says


class Conversion(NamedTuple):
    """A valid configuration as plain data, and notes for the user."""

    config: dict[str, Any]
    notes: list[str]


def convert(tree: dict[str, Any]) -> Conversion:
    """Convert the content of a XingTian file. Raises UserError for what cannot be converted.

    XingTian trains every combination of the lists in `alg_config` and `agent_config`: these become a sweep file. With
    `use_pbt` it trains a population: a population file.
    """
    if not XINGTIAN_KEYS & tree.keys():
        raise UserError(f"not a XingTian file: it has none of {', '.join(sorted(XINGTIAN_KEYS))}")
    tree, population = without_population(tree)
    lists = listed_values(tree)
    if population is not None:
        if lists:
            raise UserError(f"{next(iter(lists))} is a list, which cannot be combined with use_pbt; write one value")
        options, notes = convert_population(population)
        config, more = convert_one(tree)
        return Conversion(config | {"population": options}, more + notes)
    if not lists:
        return convert_one(tree)
    if (count := math.prod(map(len, lists.values()))) > MOST_CASES:
        raise UserError(
            f"the lists of {', '.join(lists)} have {count:,} combinations; at most {MOST_CASES:,} are tried"
        )
    cases = []
    for values in itertools.product(*lists.values()):
        case = copy.deepcopy(tree)
        for path, value in zip(lists, values, strict=True):
            assign(case, path, value)
        cases.append(convert_one(case))
    return as_sweep(cases)


def listed_values(tree: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the keys for which XingTian tries several values."""
    found = {path: value for path, value in flat(tree).items() if path.startswith(CASES) and isinstance(value, list)}
    for path, values in found.items():
        if not values:
            raise UserError(f"{path} is an empty list; write a value, or several to try")
    return found


def as_sweep(cases: list[Conversion]) -> Conversion:
    """Return a sweep file: what all cases have in common, and a list of what differs."""
    settings = [flat(case.config) for case in cases]
    common = {key: value for key, value in settings[0].items() if all(one.get(key) == value for one in settings)}
    target: dict[str, Any] = {}
    for path, value in common.items():
        assign(target, path, value)
    missing = {key: None for one in settings for key in one if key not in common}
    entries = [{key: one.get(key, Config().at(key)) for key in missing} for one in settings]
    distinct = [entry for number, entry in enumerate(entries) if entry not in entries[:number]]
    notes = dict.fromkeys(note for case in cases for note in case.notes)
    if len(distinct) > 1:
        target["sweep"] = {"list": distinct}
    return Conversion(target, list(notes))


def convert_one(tree: dict[str, Any]) -> Conversion:
    """Convert a file with one value for every key."""
    source = Source(tree)
    target: dict[str, Any] = {}

    def put(path: str, value: Any) -> None:
        assign(target, path, value)

    convert_algorithm(source)
    convert_environment(source, put)
    model = convert_model(source, put, target["env"].get("atari", {}).get("size"))
    convert_sizes(source, put, model)
    convert_run(source, put, target["env"]["id"])
    if model == "ImpalaCnnOpt":
        put("loss.reduction", "sum")
        put("loss.reward_clip", "abs_one")
    validate(target, "the converted file")
    return Conversion(target, source.notes + source.leftovers())


class Source:
    """The keys of the file. Each is taken at most once, so that the others can be listed."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self._left = flat(tree)
        self.notes: list[str] = []

    def take(self, path: str, default: Any = None, kind: type | tuple[type, ...] = object) -> Any:
        """Take the value of a key, or the default. Raises UserError if it has the wrong type."""
        value = self._left.pop(path, default)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            wanted = " or ".join(part.__name__ for part in (kind if isinstance(kind, tuple) else (kind,)))
            raise UserError(f"{path} must be of type {wanted}, got {shown(value)}")
        return value

    def take_count(self, path: str, default: int | None = None) -> Any:
        """Take an integer of at least 1, which may be written as a float, or the default if there is no value."""
        value = self.take(path, default, (int, float))
        value = default if value is None else value
        if value is not None and not (1 <= value <= MOST_COUNTED and value == int(value)):
            raise UserError(f"{path} must be an integer from 1 to {MOST_COUNTED:.0e}, got {shown(value)}")
        return None if value is None else int(value)

    def take_choice(self, path: str, choices: tuple[str, ...], what: str) -> str:
        """Take one of a few names, with or without the suffix of MindSpore's variants."""
        value = str(self.take(path, choices[0]))
        name = re.sub(r"(?i)_?ms$", "", value)
        if name not in choices:
            raise UserError(f"{path}: the {what} {value!r} cannot be converted{nearest(value, choices)}")
        return name

    def note(self, path: str, why: str) -> None:
        """Add a note on a key."""
        self.notes.append(f"{path}: {why}")

    def leftovers(self) -> list[str]:
        """Return a note on every key that was not taken, except for switches that are off."""
        words = []
        for path, value in self._left.items():
            known = [key for key in NO_COUNTERPART if path == key or path.startswith(key + ".")]
            if known and value is False:
                continue
            if known:
                words.append(f"{known[0]}: no counterpart: {NO_COUNTERPART[known[0]]}")
            else:
                words.append(f"{path}: unknown, left out")
        return list(dict.fromkeys(words))


def convert_algorithm(source: Source) -> None:
    """Check that it is IMPALA with one agent."""
    source.take_choice("alg_para.alg_name", ALGORITHMS, "algorithm")
    if (agents := source.take_count("agent_para.agent_num", 1)) != 1:
        source.note("agent_para.agent_num", f"{agents} agents in one environment have no counterpart: one agent plays")


def convert_environment(source: Source, put: Callable[[str, Any], None]) -> None:
    """Convert the environment: a Gym id, or an Atari game."""
    kind = source.take_choice("env_para.env_name", ENVIRONMENTS, "environment")
    name = source.take("env_para.env_info.name", None, str)
    if name is None:
        raise UserError("env_para.env_info.name, the environment, is missing")
    size = source.take_count("env_para.env_info.dim")
    if kind == "GymEnv":
        put("env.id", name)
        if size is not None:
            source.note("env_para.env_info.dim", f"no counterpart: the observations of {name} are not resized")
        return
    game = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", name.removeprefix("ALE/"))
    put("env.id", "atari")
    put("env.game", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", game).lower())
    if size is not None:
        put("env.atari.size", size)


def convert_model(source: Source, put: Callable[[str, Any], None], size: int | None) -> str:
    """Convert network, loss and optimiser. Return the name of the model."""
    model = source.take_choice("model_para.actor.model_name", MODELS, "model")
    path, number = "model_para.actor.model_config", (int, float)

    def setting(name: str) -> Any:
        """Take a constant from either of the two sections where XingTian looks for it."""
        return source.take(f"{path}.{name}", source.take(f"alg_para.alg_config.{name}", DEFAULTS[name], number), number)

    width, layers = (source.take_count(f"{path}.{name}", int(DEFAULTS[name])) for name in ("HIDDEN_SIZE", "NUM_LAYERS"))
    if layers > MOST_LAYERS:
        raise UserError(f"{path}.NUM_LAYERS must be at most {MOST_LAYERS}, got {layers}")
    if model.startswith("ImpalaMlp"):
        put("network.torso", "mlp")
        put("network.hidden", [width] * layers)
        put("network.activation", "relu")
    else:
        # XingTian's last layer covers all 11x11 cells; for 42x42 frames, so does that of `compact`.
        put("network.torso", OPT_CNN.get(size or 84, "opt_cnn") if model == "ImpalaCnnOpt" else "nature")
        convert_scaling(source)
    put("loss.discount", setting("GAMMA"))
    put("loss.entropy_cost", setting("ENTROPY_LOSS"))
    chosen = source.take(f"{path}.opt_type", "adam", str)
    if chosen not in OPTIMISERS:
        raise UserError(f"{path}.opt_type: {chosen!r} is not one of {', '.join(OPTIMISERS)}")
    put("optimiser.name", OPTIMISERS[chosen])
    put("optimiser.learning_rate", setting("LR"))
    schedule = source.take(f"{path}.lr_schedule")
    put("optimiser.schedule", "linear" if schedule else "constant")
    if schedule:
        put("optimiser.learning_rate", first_rate(schedule, f"{path}.lr_schedule"))
        source.note(f"{path}.lr_schedule", "a cosine over 20,000 updates there; linear to zero at run.total_steps here")
    if chosen == "rmsprop":
        put("optimiser.epsilon", 0.1)
        source.note(f"{path}.opt_type", "centred there, not centred here")
    unsaid = None if model.startswith("ImpalaMlp") else 40.0
    put("optimiser.max_gradient_norm", source.take(f"{path}.grad_norm_clip", unsaid, number))
    return model


def first_rate(schedule: Any, path: str) -> float:
    """Return the first learning rate of a schedule such as [[0, 0.01], [20000, 0.000001]]."""
    try:
        return float(schedule[0][1])
    except (TypeError, ValueError, LookupError, OverflowError):
        raise UserError(
            f"{path} must be pairs of a step and a rate, such as [[0, 0.01]], got {shown(schedule)}"
        ) from None


def convert_scaling(source: Source) -> None:
    """Note where XingTian scales images differently."""
    path = "model_para.actor"
    mean, deviation = source.take(f"{path}.state_mean", 0.0), source.take(f"{path}.state_std", 255.0)
    if (mean, deviation) != (0.0, 255.0):
        source.note(f"{path}.state_mean, state_std", f"({mean}, {deviation}) there; images go from 0 to 1 here")


def convert_sizes(source: Source, put: Callable[[str, Any], None], model: str) -> None:
    """Convert the length of unrolls, their number in a batch, and the number of environments.

    XingTian's learner waits for `prepare_times_per_train` messages of its explorers, each with one unroll per
    environment of that explorer, and learns from at most BATCH_SIZE of their steps at once; its Keras models from 128.
    """
    algorithm, agent = "alg_para.alg_config", "agent_para.agent_config"
    lengths = [
        source.take_count(f"{algorithm}.episode_len"),
        source.take_count("model_para.actor.model_config.sample_batch_step"),
        source.take_count(f"{agent}.max_steps"),
    ]
    length = next((value for value in lengths if value is not None), 128)
    put("actors.unroll_length", length)
    explorers, vector = source.take_count("env_num", 1), source.take_count("env_para.env_info.vector_env_size", 1)
    rows = source.take_count(f"{algorithm}.BATCH_SIZE", 512)
    if model != "ImpalaCnnOpt":
        rows = min(rows, MOST_ROWS)
    waited_for = source.take_count(f"{algorithm}.prepare_times_per_train", explorers) * vector
    batch = max(1, min(rows // length, waited_for))
    total = explorers * vector
    envs = envs_per_actor(total, batch)
    count = max(1, round(total / envs))
    put("actors.count", count)
    put("actors.envs", envs)
    put("learner.batch_size", batch)
    if batch > 2 * count * envs:  # more than the usual two slots can hold
        put("actors.slots", -(-batch // (count * envs)))
    if vector > 1 or explorers > 1:
        source.note("env_num", f"{total} environments become actors.count={count} times actors.envs={envs}")
    source.note(
        f"{algorithm}.BATCH_SIZE, prepare_times_per_train",
        f"updates of up to {rows} steps become learner.batch_size={batch}, which counts unrolls (of {length} steps)",
    )


def envs_per_actor(total: int, batch: int) -> int:
    """Return about 16, so that all actors have about `total` environments, and unrolls divide evenly into batches."""

    def misses(envs: int) -> float:
        return abs(max(1, round(total / envs)) * envs - total) / total

    # One environment always fits, so none that is further from 16 can be chosen.
    most = min(total, 2 * ENVS_PER_ACTOR - 1)
    even = [envs for envs in range(1, most + 1) if envs % batch == 0 or batch % envs == 0]
    return min((envs for envs in even if misses(envs) <= TOLERANCE), key=lambda envs: abs(envs - ENVS_PER_ACTOR))


def convert_run(source: Source, put: Callable[[str, Any], None], env_id: str) -> None:
    """Convert when the run ends, and how it is evaluated."""
    put("run.total_steps", source.take_count("agent_para.agent_config.complete_step", 10_000_000))
    goal = reward_threshold(env_id)
    if goal is not None:
        put("run.stop_return", goal)
        source.note(
            "run.stop_return",
            f"added: {env_id} counts as solved at {goal:g}; null trains for all of run.total_steps",
        )
    if (episodes := source.take_count("benchmark.eval.episodes_per_eval")) is not None:
        put("evaluation.episodes", episodes)
        source.note("benchmark.eval", "evaluation beside training is off until evaluation.enabled=true")


def reward_threshold(env_id: str) -> float | None:
    """Return the mean return at which Gymnasium calls an environment solved; None if it has no such threshold."""
    import gymnasium

    spec = gymnasium.registry.get(env_id)
    return None if spec is None else spec.reward_threshold
