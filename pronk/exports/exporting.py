"""Exports a trained policy to one file, with a program that uses it, and checks that it acts as the trained one does.

    run --> network --> PlainPolicy --Format--> FILE --loaded again--> compared on observations of the real environment

The file gets its name only after the comparison has passed, so an export that exists is correct.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pronk import __version__
from pronk.config import ResolvedConfig
from pronk.config.named import find
from pronk.envs import make_env
from pronk.envs.last_inputs import LastInputs
from pronk.evaluation.playing import checkpoint_of, config_to_play, restored_network
from pronk.exports.base import FORMATS, Format
from pronk.exports.comparing import ENVS, STEPS, Sample, largest_difference, play_samples
from pronk.exports.plain_policy import PlainPolicy, action_units
from pronk.exports.program import program_text
from pronk.processes.failures import user_code
from pronk.runs.atomic import write_atomically
from pronk.runs.directory import find_run
from pronk.types import ArraySpec, Failure, UserError

LARGEST_DIFFERENCE = 1e-3  # room for float32 arithmetic in another order, not for a mistake; relative above 1


class Exported(NamedTuple):
    """What was written, and how far it is from the trained policy."""

    file: Path
    program: Path
    difference: float
    observations: int
    inputs: dict[str, ArraySpec]
    outputs: dict[str, ArraySpec]
    note: str


def export(
    run: str | Path,
    to: str = "onnx",
    out: str | Path | None = None,
    *,
    best: bool = False,
    task: str | None = None,
    trust: bool = False,
) -> Exported:
    """Write a run's newest (or best) policy to one file, and a program that uses it beside the file.

    `to` is a name in FORMATS or `module:Class`. The file is RUN/export/policy.SUFFIX unless `out` names another.
    Of a run with several tasks the policy is the same for all; `task` (by default the first) is the one whose action
    units it has, and on whose observations it is checked. Raises `Failure` where the exported policy differs from the
    trained one, and `UserError` for a run that names code which this account has not trained with, unless `trust` is
    true.
    """
    make_format = find("export format", to, FORMATS)
    directory = find_run(str(run))
    state = checkpoint_of(directory, best)
    config = config_to_play(state, run, trust)
    torch.set_num_threads(1)
    if config.env.vectorization == "async":  # a few environments for a moment need no processes
        config = config.replace({"env.vectorization": "sync"})
    with user_code("the environment"):
        env = make_env(config, ENVS, task=task or next(iter(config.env.task_names), None))
    try:
        network = restored_network(config, env.spec, state)
        policy = PlainPolicy(network, action_units(env), isinstance(env, LastInputs))
        form: Format = make_format(policy)
        path = Path(out) if out is not None else directory.path / "export" / f"policy{form.suffix}"
        with user_code("the environment or the network"):
            samples = list(play_samples(env, policy))
    finally:
        env.close()
    difference = write_checked(form, policy, path, samples, facts(policy, config, state["metrics"]["env_steps"]))
    program = path.with_name(f"{path.stem}_{to.rpartition(':')[2].lower()}.py")
    write_atomically(program, program_text(form, policy, path.name, config.env.label).encode())
    return Exported(path, program, difference, ENVS * STEPS, policy.inputs, policy.outputs, form.note)


def write_checked(form: Format, policy: PlainPolicy, path: Path, samples: list[Sample], facts: str) -> float:
    """Write to a temporary file, load it, compare, rename. Returns the largest difference."""
    aside = path.with_name(f".{os.getpid()}.{path.name}")
    example = tuple(torch.from_numpy(array) for array in samples[0].inputs.values())
    if path.is_dir():
        raise UserError(f"{path} is a directory; name a file, such as {path / f'policy{form.suffix}'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with user_code("the export"):
            form.write(aside, example, facts)
            difference = largest_difference(form.open(aside), policy, samples)
        if not difference <= LARGEST_DIFFERENCE:
            raise Failure(
                f"the exported policy differs from the trained one by {difference:.2g} (allowed: "
                f"{LARGEST_DIFFERENCE:g}); nothing was written"
            )
        os.replace(aside, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
    return difference


def facts(policy: PlainPolicy, config: ResolvedConfig, steps: int) -> str:
    """What a user of the file needs to know, and what `pronk.load` needs to build the network, as JSON."""

    def arrays(specs: dict[str, ArraySpec]) -> dict[str, Any]:
        return {
            name: {"shape": ["batch", *spec.shape], "dtype": spec.dtype}
            | ({"labels": list(spec.categories)} if spec.categories else {})
            | ({"words": spec.words} if spec.words else {})
            for name, spec in specs.items()
        }

    return json.dumps(
        {
            "made_by": f"pronk {__version__}",
            "environment": config.env.label,
            "trained_steps": steps,
            "inputs": arrays(policy.inputs),
            "outputs": arrays(policy.outputs),
            "inside": "bytes scaled to [0, 1], labels (counted from 0) made one-hot, masks applied, rewards clipped to "
            "[-1, 1], words (each 1 + crc32 % words, in lower case, then zeros) embedded, "
            "state cleared where first is true, the action translated to the environment's units",
            "config": {"env": config.env.model_dump(), "network": config.network.model_dump()},
        }
    )
