"""`pronk plan`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table

from pronk.cli.bench import other_load
from pronk.cli.shell import Overrides, Source, app, out, warn
from pronk.config import load_config
from pronk.config.resolved import check_resolved
from pronk.types import UserError

if TYPE_CHECKING:
    from pronk.config import ResolvedConfig
    from pronk.planning.costs import Costs
    from pronk.planning.search import Plan, Request

BYTES = 1e9 / 8  # per Gbit


@app.command()
def plan(
    source: Source,
    overrides: Overrides = None,
    target: Annotated[
        float | None, typer.Option(help="Speed to plan for, in steps/s, or with --frames in frames/s.")
    ] = None,
    frames: Annotated[bool, typer.Option("--frames/--steps", help="The unit of --target.")] = False,
    machines: Annotated[int | None, typer.Option(help="Machines that there are [default: as many as needed].")] = None,
    cores: Annotated[
        int | None, typer.Option(help="Cores of each [default: as where the costs were measured].")
    ] = None,
    bandwidth: Annotated[float, typer.Option(help="Of each machine's network card, in Gbit/s.")] = 10.0,
    learner_rate: Annotated[
        float | None,
        typer.Option(help="Steps/s that one learner learns from on a GPU that you measured elsewhere."),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="What `pronk bench --json` or `pronk plan --json` printed [default: measure here]."),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Seconds to measure, if there are no --costs.")] = 8.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print plan and costs as one JSON object.")] = False,
) -> None:
    """Predict how fast a preset trains, and how many actors, gateways and learners a speed needs.

    Without --target it predicts the preset as it is, on one machine. With it, one machine is tried first. If that is
    not enough, each learner gets a machine of its own with its gateway, and actors play on others, one for each core:
    as many as are needed, or what --machines allows.

    Actors and updates are measured here for a few seconds, or taken from --costs; then the whole pipeline is simulated:
    actors, slots, network, gateway, batches, learners. `pronk plan pong --json > costs.json` keeps the costs, and
    `pronk plan pong --costs costs.json --target 250000 --frames --bandwidth 25` plans with them. docs/scale.md says how
    exact this is.
    """
    check_options(target, machines, cores, bandwidth, learner_rate, seconds)
    config = load_config(source, overrides)
    from pronk.planning.measuring import learner_config

    resolved = learner_config(config, warn)
    check_plannable(resolved, target)
    many = as_json or (target is not None and machines != 1)  # costs that are kept should serve every plan
    measured, notes = costs_for(resolved, costs, seconds, many, learner_rate)
    from pronk.planning.search import Request, make_plan

    request = Request(
        cores=cores or measured.cores,
        target=target / (measured.frames_per_step if frames else 1) if target else None,
        machines=machines,
        bandwidth=bandwidth * BYTES,
        learner_rate=learner_rate,
    )
    made = make_plan(resolved, measured, request)
    notes += missing_costs(made, measured)
    if as_json:
        print(json.dumps({"plan": plain(made, request, resolved, measured, notes), "costs": measured.plain()}))
        return
    for note in notes:
        warn(note)
    show(made, request, resolved, measured, source)


def check_options(
    target: float | None,
    machines: int | None,
    cores: int | None,
    bandwidth: float,
    learner_rate: float | None,
    seconds: float,
) -> None:
    """Raise UserError for a number that makes no sense."""
    for name, value in {"target": target, "bandwidth": bandwidth, "learner-rate": learner_rate}.items():
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"--{name} must be a finite number above 0, got {value:g}")
    for name, count in {"machines": machines, "cores": cores}.items():
        if count is not None and count < 1:
            raise UserError(f"--{name} must be at least 1, got {count}")
    if not 1 <= seconds < math.inf:
        raise UserError(f"--seconds must be finite and at least 1, got {seconds:g}")
    if machines is not None and target is None:
        raise UserError("--machines needs --target, the speed to plan for")


def check_plannable(config: ResolvedConfig, target: float | None) -> None:
    """Raise UserError for what the simulation does not model: before seconds are spent on measuring."""
    if config.transport.name == "local":
        raise UserError("transport=local plays and learns in one thread; plan with transport=shared_memory or grpc")
    if config.actors.inference != "local":
        raise UserError(
            f"actors.inference={config.actors.inference} cannot be planned; plan with actors.inference=local"
        )
    if target is None:  # the configuration is predicted as it is; else the number of actors is what is looked for
        check_resolved(config)
        if config.actors.count == 0:
            raise UserError("actors.count=0 leaves no actor here to predict; set actors.count, or give --target")


def costs_for(
    resolved: ResolvedConfig, path: Path | None, seconds: float, many: bool, learner_rate: float | None
) -> tuple[Costs, list[str]]:
    """Return the costs of a file, or measure them; also what the user should know about them.

    `many`: also measure what only several machines or learners need.
    """
    from pronk.planning import costs as files
    from pronk.planning.measuring import measure_costs, sizes_of

    if path is None:
        network, group = many or resolved.has_gateway, many or resolved.learners > 1
        other_load()
        return measure_costs(resolved, seconds, warn, network, group, learner_rate), []
    tree = files.read_costs(path)
    if files.is_from_bench(tree):
        sizes = sizes_of(resolved)[0]
        note = f"{path} has the parts alone, without what lies around them; `pronk plan --json` measures that, too"
        return files.costs_of_bench(tree, sizes, path), [note]
    read = files.costs_of(tree, path)
    shape = {"actors.envs": (resolved.actors.envs, read.envs)}
    shape["actors.unroll_length"] = (resolved.actors.unroll_length, read.unroll_length)
    shape["columns of a learner's batch"] = (resolved.learner.batch_size, read.batch_size)
    other = [f"{name} {before}, not {now}" for name, (now, before) in shape.items() if now != before]
    notes = [f"{path} was measured with {', '.join(other)}: costs per step are taken as they are"] if other else []
    if read.device == "given" and learner_rate is None:
        notes.append(
            f"{path} has no measured learner, but the --learner-rate that was given: {1 / read.update:,.0f} steps/s"
        )
    return read, notes


def missing_costs(made: Plan, costs: Costs) -> list[str]:
    """Return what the plan had to leave out, because it was not measured."""
    missing = []
    if made.pipeline.network and costs.gateway is None:
        missing.append("the costs have no gateway, so sending unrolls counts as free, apart from the bandwidth")
    if made.learners > 1 and costs.exchange is None:
        missing.append("the costs have no exchange between learners, so that counts as free, apart from the bandwidth")
    return missing


def plain(made: Plan, request: Request, config: ResolvedConfig, costs: Costs, notes: list[str]) -> dict[str, Any]:
    """Return the plan as plain data."""
    from pronk.planning.wording import NAMES, advice, bottleneck, settings

    prediction = made.prediction
    return {
        "target": request.target,
        "reached": made.reached,
        "actors": made.actors,
        "learners": made.learners,
        "gateways": made.gateways,
        "machines": made.machines,
        "actor_machines": made.actor_machines,
        "cores": request.cores,
        "steps_per_second": prediction.steps_per_second,
        "frames_per_second": prediction.steps_per_second * costs.frames_per_step,
        "updates_per_second": prediction.updates_per_second,
        "policy_lag": prediction.lag + config.learner.extra_lag,
        "most_policy_lag": prediction.most_lag + config.learner.extra_lag,
        "learner_waits": prediction.learner_waits,
        "utilisation": prediction.utilisation,
        "bytes_per_second": {"up": prediction.up, "down": prediction.down},
        "bottleneck": NAMES[bottleneck(made)],
        "advice": advice(made),
        "settings": settings(made, config.learner.batch_size, config.learners),
        "notes": notes,
    }


def show(made: Plan, request: Request, config: ResolvedConfig, costs: Costs, source: str) -> None:
    """Print the plan as a table."""
    from pronk.planning.wording import NAMES

    figures = plain(made, request, config, costs, [])
    where = "1 machine" if made.machines == 1 else f"{made.machines:,} machines"
    table = Table(
        Column(f"{source} on {where} of {request.cores} cores"), Column("", justify="right"), show_header=True
    )
    rows = [("actors", f"{made.actors:,}"), ("learners", f"{made.learners:,}")]
    if made.gateways:
        rows.append(("gateways", f"{made.gateways:,}"))
    if made.machines > 1:
        rows.append(("machines: learners + actors", f"{made.learners:,} + {made.actor_machines:,}"))
    rows.append(("predicted steps/s", f"{figures['steps_per_second']:,.0f}"))
    if costs.frames_per_step > 1:
        rows.append(("predicted frames/s", f"{figures['frames_per_second']:,.0f}"))
    rows.append(("policy lag in updates: mean, most", f"{figures['policy_lag']:.1f}, {figures['most_policy_lag']:,}"))
    if made.gateways and not made.pipeline.one_machine:
        up, down = (value / 1e6 for value in figures["bytes_per_second"].values())
        rows.append(("MB/s of a learner's machine: in, out", f"{up:,.0f}, {down:,.0f}"))
    rows += [(f"busy: {NAMES[name]}", f"{share:.0%}") for name, share in figures["utilisation"].items()]
    rows.append(("bottleneck", figures["bottleneck"]))
    for row in rows:
        table.add_row(*row)
    out.print(table)
    if not made.reached:
        share = figures["steps_per_second"] / (request.target or 1.0)
        out.print(
            f"this is {share:.1%} of the target: it cannot be reached with these costs and machines", style="yellow"
        )
    out.print(figures["advice"], highlight=False, soft_wrap=True)
    out.print(f"settings: {figures['settings']}", highlight=False, soft_wrap=True)
