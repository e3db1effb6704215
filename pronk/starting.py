"""From a configuration to a run: checks everything before anything is written, then starts `training.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pronk.actor import specs_for
from pronk.cloning import start_from_dataset
from pronk.config import (
    Config,
    ResolvedConfig,
    decided,
    load_config,
    memory_bytes,
    override,
    plain_yaml,
    record,
    resolve,
    validate,
)
from pronk.config.automatic import chosen, depends_on_environment
from pronk.config.resolved import ONLY, Rank, check_resolved, refuse_session_names, runs_in_one_process, session_names
from pronk.device import choose_device
from pronk.envs.probing import spec_of
from pronk.layout import UnrollLayout
from pronk.learner import Learner
from pronk.learners import GroupEnded, Rendezvous, coordinate, find_rendezvous, participate
from pronk.policies import check_inference
from pronk.processes import session
from pronk.processes.failures import user_code
from pronk.processes.freed_memory import keep_freed_memory
from pronk.processes.full_disk import NO_ROOM, no_compiled_files
from pronk.replay import describe_replay, replay_nbytes
from pronk.runs.directory import RunDirectory
from pronk.runs.reading import RUNS
from pronk.runs.trust import remember
from pronk.sinks import Sink
from pronk.sinks.callbacks import Callbacks, OnCheckpoint, OnLine
from pronk.sinks.notebook import NotebookDisplay, in_notebook
from pronk.sinks.outside import check_sinks
from pronk.training import Say, Training
from pronk.transport.security import check_gateway
from pronk.types import EnvSpec, Failure, UserError
from pronk.watching import film_final


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP, raised when everything is saved and closed."""

    def __init__(self, summary: dict[str, Any]) -> None:
        super().__init__(f"interrupted; the run is in {summary['run']}")
        self.summary = summary


def train(
    source: Config | str | Path | Callable[..., Any],
    overrides: Sequence[str] = (),
    *,
    run_dir: str | Path | None = None,
    name: str | None = None,
    resume: bool = False,
    on_metrics: OnLine | None = None,
    on_episode: OnLine | None = None,
    on_checkpoint: OnCheckpoint | None = None,
    on_evaluation: OnLine | None = None,
    display: Sink | None = None,
    say: Say = print,
) -> dict[str, Any]:
    """Train until `run.total_steps` or `run.stop_return`, and return what `summary.json` holds.

        pronk.train("cartpole")
        pronk.train("LunarLander-v3", ["run.total_steps=1e6", "run.seed=3"], run_dir="runs/lander")
        pronk.train(MyEnv)
        pronk.train(lambda: MyEnv(size=8), on_metrics=lambda line: line["wall_seconds"] < 60)  # stops after a minute

    Callbacks run in this thread, between two updates. One that returns False stops the run, with a checkpoint and the
    outcome `stopped`; an exception in one ends the run as `failed` and is raised here.

    Args:
        source: a preset, a YAML file, a Gymnasium id, a configuration, or your own class of environments or function
            that makes one. These may be defined in a notebook cell or in a script, too: then their code is sent to the
            actor processes of this machine, but never to other machines.
        overrides: settings on top, as on the command line.
        run_dir: where the run is written. By default a new one, runs/NAME-DATE-TIME.
        name: of the new run, by default the environment's id.
        resume: continue the run in `run_dir`.
        on_metrics: gets each line of metrics.jsonl, about once a second: `{"env_steps": ..., "episode_return": ...}`.
        on_episode: gets every episode that this learner's actors finished: `episode_return`, `episode_length`, `task`,
            `environment` and the numbers of `env.info`.
        on_checkpoint: gets the path of each checkpoint after it was written.
        on_evaluation: gets each line of eval.jsonl, with `evaluation=true`.
        display: one more sink for the metrics. None: in a notebook a picture that follows the run, elsewhere nothing.
        say: gets warnings, and notes on what was chosen.

    Raises:
        UserError: a mistake in the settings or the environment, in one line.
        Failure: the run cannot continue; the message has the cause.
        TrainingInterrupted: Ctrl-C, after a checkpoint.
    """
    config = config_of(source, overrides)
    callbacks = Callbacks(on_metrics, on_episode, on_checkpoint, on_evaluation)
    if display is None and in_notebook():
        display = NotebookDisplay(name or run_name(config), config.run.total_steps, config.run.stop_return)
    if config.cluster.name == "ray":
        refuse_callbacks(callbacks, "cluster=ray")
        return raise_if_interrupted(train_on_cluster(config, run_dir, name, resume, display, say))
    rendezvous = find_rendezvous(config.learners)
    if rendezvous.rank > 0:
        return train_as_participant(rendezvous, say)
    with opened(config, rendezvous, run_dir, name, resume, say, aloud=display is not None) as training:
        summary = raise_if_interrupted(training.go(display, callbacks))
    callbacks.raise_error()
    if config.run.video:
        film_final(Path(summary["run"]), say, len(config.env.each_task))
    return summary


def config_of(source: Config | str | Path | Callable[..., Any], overrides: Sequence[str]) -> Config:
    """Return the configuration of what `train` was given."""
    if isinstance(source, Config):
        return override(source, overrides) if overrides else source
    return load_config(source, overrides)


def refuse_callbacks(callbacks: Callbacks, where: str) -> None:
    """Raise UserError if there are callbacks: training happens in another process, which cannot call them."""
    if callbacks.given:
        raise UserError(f"{where}: callbacks would have to be called in another process; use run.sinks=module:Class")


@contextlib.contextmanager
def opened(
    config: Config,
    rendezvous: Rendezvous,
    run_dir: str | Path | None,
    name: str | None,
    resume: bool,
    say: Say,
    aloud: bool,
) -> Iterator[Training]:
    """Create or open the run directory, and yield the training of learner 0, the only one or of several.

    `aloud`: also report to the user what was chosen.
    """
    if resume and run_dir is None:
        raise UserError("resume needs run_dir, the run to continue")
    if run_dir is not None and not resume:
        RunDirectory.refuse_used(Path(run_dir))
    remember(config, say)
    config, resolved, learner, choices = prepare(config, rendezvous, say)
    if resolved.loss.clone and not resume:
        choices = [*choices, start_from_dataset(learner, resolved, say if aloud else lambda line: None)]
    recorded = record(config, resolved)
    with coordinate(rendezvous, config.loss.reduction, say, config.actors.timeout_seconds) as group:
        if resume:
            run = RunDirectory.open(Path(str(run_dir)))
        else:
            with writing_run(run_dir or RUNS):
                run = RunDirectory.create(recorded, Path(run_dir) if run_dir else None, name or run_name(config))
        with run.locked(), no_compiled_files():
            for line in choices if aloud else []:
                say(line)
            with writing_run(run.path):
                training = Training(resolved, recorded, run, learner, resume, say, group)
            group.announce(config.to_yaml(), str(run.path), run.logs)
            try:
                yield training
            except Exception as error:
                run.write_failure(str(error))
                raise


@contextlib.contextmanager
def writing_run(path: str | Path) -> Iterator[None]:
    """Raise Failure in one line if the run directory cannot be written: a full disk, or no permission."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        room = "make room there, or " if error.errno in NO_ROOM else ""
        raise Failure(f"cannot write the run directory {path}: {reason}; {room}choose another directory") from None


class Prepared(NamedTuple):
    """What `prepare` returns: everything that a run starts with."""

    config: Config  # what depends on the environment is decided
    resolved: ResolvedConfig
    learner: Learner
    choices: list[str]  # lines for the user


def prepare(config: Config, rendezvous: Rendezvous, say: Say) -> Prepared:
    """Make the learner, and check everything. Nothing is written yet; most configuration mistakes are found here."""
    check_sinks(config.run.sinks)
    check_filming(config)
    spec = spec_of(config, say)
    for note in spec.notes:
        say(note)
    has_choice, config = depends_on_environment(config), decided(config, spec)
    resolved = resolve(config, rendezvous)
    check_resolved(resolved)
    if not runs_in_one_process(resolved):
        session.share(session_names(resolved))
    check_inference(resolved)
    check_teams(resolved, spec)
    learner = learner_for(resolved, spec, rendezvous)
    refuse_more_than_memory(resolved, learner, rendezvous.count_here)
    replay = replay_memory(resolved, learner, rendezvous.count_here)
    check_gateway(resolved)
    choices = [chosen(config, spec)] if has_choice else []
    if replay:
        choices.append(describe_replay(resolved, config.replay.size, replay))
    return Prepared(config, resolved, learner, choices)


def check_filming(config: Config) -> None:
    """Raise UserError if the clips that are asked for need a package that is not installed."""
    settings = {"run.video": config.run.video, "run.clip_every_steps": config.run.clip_every_steps}
    if asked := [name for name, value in settings.items() if value]:
        from pronk.envs.mistakes import check_drawing  # not every environment needs Gymnasium

        check_drawing(asked[0], config.env.each_task)


def train_on_cluster(
    config: Config, run_dir: str | Path | None, name: str | None, resume: bool, display: Sink | None, say: Say
) -> dict[str, Any]:
    """Train on a Ray cluster; this process shows the progress."""
    from pronk.cluster.ray_cluster import train_on_ray

    refuse_session_names(config, "cluster=ray")
    remember(config, say)
    path = Path(run_dir) if run_dir is not None else None
    return train_on_ray(config, run_dir=path, name=name or run_name(config), resume=resume, display=display, say=say)


def train_as_participant(rendezvous: Rendezvous, say: Say) -> dict[str, Any]:
    """Train as a learner other than 0, with the configuration that learner 0 sends."""
    try:
        with participate(rendezvous, say) as (group, welcome):
            config = validate(plain_yaml.parse(welcome.config))
            spec = spec_of(config, group.say)
            resolved = resolve(config, rendezvous)
            check_resolved(resolved)
            check_inference(resolved)
            check_teams(resolved, spec)
            run = RunDirectory(Path(welcome.run))
            run.logs /= f"learner-{rendezvous.rank:03d}"
            run.logs.mkdir(parents=True, exist_ok=True)
            learner = learner_for(resolved, spec, rendezvous)
            refuse_more_than_memory(resolved, learner, rendezvous.count_here)
            replay_memory(resolved, learner, rendezvous.count_here)
            with no_compiled_files():
                return raise_if_interrupted(Training(resolved, config, run, learner, False, group.say, group).go(None))
    except GroupEnded as end:  # before training began
        if end.outcome == "failed":
            raise Failure(end.message) from None
        return raise_if_interrupted({"outcome": end.outcome, "run": ""})


def run_name(config: Config) -> str:
    """Return the beginning of a new run's name: its environment's id, or a label for its tasks."""
    return config.env.label if config.env.tasks else config.env.id.removeprefix(session.PREFIX)


def raise_if_interrupted(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the summary, or raise `TrainingInterrupted` if the run was interrupted."""
    if summary["outcome"] == "interrupted":
        raise TrainingInterrupted(summary)
    return summary


def check_teams(config: ResolvedConfig, spec: EnvSpec) -> None:
    """Raise UserError unless the columns of an actor divide into teams of agents."""
    envs = config.actors.envs
    if envs % spec.agents:
        fitting = -(-envs // spec.agents) * spec.agents
        raise UserError(
            f"actors.envs ({envs}) must be a multiple of {spec.agents}, the number of agents of {config.env.id}: try "
            f"actors.envs={fitting}"
        )


def learner_for(config: ResolvedConfig, spec: EnvSpec, rank: Rank = ONLY) -> Learner:
    """Return a learner for the environment, with the configured share of the machine."""
    keep_freed_memory()
    device = choose_device(config.learner.device, rank.rank_here)
    torch.set_num_threads(1)  # for the first weights
    with user_code("the network or the loss"):
        learner = Learner(config, spec, device)
    torch.set_num_threads(learner.threads)
    return learner


def refuse_more_than_memory(config: ResolvedConfig, learner: Learner, learners: int = 1) -> None:
    """Raise UserError if the unrolls need more memory than this machine has."""
    nbytes = UnrollLayout(specs_for(config, learner.spec, learner.network.state_spec)).nbytes
    staged = 2 * max(1, config.learner.batch_size // config.actors.envs)
    nbytes *= (config.actors.slots * config.actors.count + staged) * learners
    memory = memory_bytes()
    if nbytes > memory:
        raise UserError(
            f"the unrolls of all actors need {nbytes / 2**30:,.0f} GiB, this machine has {memory / 2**30:,.0f}: lower "
            "actors.count, actors.envs, actors.unroll_length or actors.slots"
        )


def replay_memory(config: ResolvedConfig, learner: Learner, learners: int = 1) -> int:
    """Return the bytes that this machine's replay buffers need. Raises UserError if it has less memory."""
    nbytes = replay_nbytes(specs_for(config, learner.spec, learner.network.state_spec), config) * learners
    memory = memory_bytes()
    if nbytes > memory:
        raise UserError(
            f"replay.size: the columns need {nbytes / 2**30:,.0f} GiB, this machine has {memory / 2**30:,.0f}: lower "
            "replay.size or actors.unroll_length"
        )
    return nbytes
