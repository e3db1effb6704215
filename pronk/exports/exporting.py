"""Takes a trained policy out of Pronk: one file that others can run, a program that runs it, and a proof that it acts
as the trained one does.

    run --> network --> PlainPolicy --Format--> FILE --opened again--> compared on observations of the real environment

The file takes its name only when the comparison has been passed, so an export that is there is right.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pronk import __version__
from pronk.config import ResolvedConfig, resolve, validate
from pronk.envs import VectorEnv, make_env
from pronk.envs.last_inputs import LastInputs
from pronk.evaluation.playing import checkpoint_of, restored_network
from pronk.exports import Format, PlainPolicy, Run, check_format, make_format
from pronk.exports.plain_policy import LAST, next_name, state_name, units_of
from pronk.exports.usage import usage
from pronk.processes.failures import own_failures
from pronk.runs.checkpoint import find_run, write_atomically
from pronk.seeding import evaluation_seeds
from pronk.types import ArraySpec, Failure, Tree, UserError, leaves, map_tree

LARGEST_DIFFERENCE = 1e-3  # room for float32 arithmetic in another order, none for a mistake; relative above 1
ENVS, STEPS = 8, 32  # of the real environment, on which the two are compared
OPENS_ANYWAY = 0.1  # how often an episode is declared to open where none does, so that clearing a memory is seen


class Exported(NamedTuple):
    """What was written, and how near it is to the trained policy."""

    file: Path
    program: Path
    difference: float
    observations: int
    inputs: dict[str, ArraySpec]
    outputs: dict[str, ArraySpec]
    note: str


def export(run: str | Path, to: str = "onnx", out: str | Path | None = None, *, best: bool = False) -> Exported:
    """Write a run's newest (or best) policy to one file, and beside it a program that uses it without Pronk."""
    check_format(to)
    directory = find_run(str(run))
    state = checkpoint_of(directory, best)
    config = resolve(validate(state["config"]))
    torch.set_num_threads(1)
    with own_failures("the environment"):
        env = make_env(in_one_process(config), ENVS)
    try:
        network = restored_network(config, env.spec, state)
        policy = PlainPolicy(network, units_of(env), isinstance(env, LastInputs))
        form = make_format(to, policy)
        path = Path(out) if out is not None else directory.path / "export" / f"policy{form.suffix}"
        with own_failures("the environment or the network"):
            moments = list(real_moments(env, policy))
    finally:
        env.close()
    facts = described(policy, config, state["metrics"]["env_steps"])
    difference = written(form, policy, path, moments, facts)
    program = path.with_name(f"{path.stem}_{to}.py")
    write_atomically(program, usage(form, policy, path.name, config.env.game or config.env.id).encode())
    return Exported(path, program, difference, ENVS * STEPS, policy.inputs, policy.outputs, form.note)


class Moment(NamedTuple):
    """One batch of inputs as the real environment gave them, and what the trained policy makes of it."""

    given: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]


@torch.no_grad()
def real_moments(env: VectorEnv, policy: PlainPolicy) -> Iterator[Moment]:
    """Play with the trained network itself, not through `PlainPolicy`: sampled actions, which see more."""
    network, action_spec = policy.network, env.spec.action
    generator, random = torch.Generator().manual_seed(1), np.random.default_rng(1)
    state = network.initial_state(env.count)
    action = np.zeros((env.count, *action_spec.shape), action_spec.array.dtype)
    step = env.reset(evaluation_seeds(1, env.count)[1])
    for _ in range(STEPS):
        first = step.first | (random.random(env.count) < OPENS_ANYWAY)
        base = map_tree(np.copy, step.observation)
        seen = base
        if isinstance(env, LastInputs):
            base = {key: part for key, part in base.items() if key not in LAST}
            seen = env.extend(base, first, action, step.reward)
        timed = map_tree(lambda array: torch.from_numpy(array).unsqueeze(0), seen)
        parameters, after = network.policy(timed, torch.from_numpy(first).unsqueeze(0), state)
        distribution = network.distribution(parameters, timed)
        given = inputs_of(policy, base, first, step.reward, state, action)
        likeliest = distribution.mode()[0].numpy()
        yield Moment(given, expected_of(policy, env, likeliest, parameters[0], after, given))
        state, action = after, distribution.sample(generator)[0].numpy()
        step = env.step(action)


def inputs_of(
    policy: PlainPolicy, observation: Tree, first: np.ndarray, reward: np.ndarray, state: Tree, action: np.ndarray
) -> dict[str, np.ndarray]:
    """By their names, and as they are typed."""
    given = {policy.observed[path]: array for path, array in leaves(observation)}
    given |= {state_name(path): tensor.numpy() for path, tensor in leaves(state)}
    shift = 1 if policy.action.choices else 0
    given |= {"first": first, "reward": np.asarray(reward), "state.last_action": action + shift}
    return {name: np.ascontiguousarray(given[name], spec.dtype) for name, spec in policy.inputs.items()}


def expected_of(
    policy: PlainPolicy,
    env: VectorEnv,
    likeliest: np.ndarray,
    parameters: torch.Tensor,
    state: Tree,
    given: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """What `PlainPolicy` should answer, from the network's own answer and the adapter's own translation."""
    expected = {"action": np.asarray(env.decode(likeliest)), "logits": parameters.numpy()}
    if policy.action.choices and policy.is_masked:
        allowed = given[policy.observed["action_mask"]] != 0
        expected["logits"] = np.where(allowed, expected["logits"], np.float32(-1e9))
    if not policy.action.choices:
        mean, log_std = np.split(parameters.numpy(), 2, -1)
        expected |= {"mean": mean.reshape(likeliest.shape), "log_std": log_std.reshape(likeliest.shape)}
    expected |= {next_name(state_name(path)): tensor.numpy() for path, tensor in leaves(state)}
    expected["next.last_action"] = likeliest + (1 if policy.action.choices else 0)
    return {name: expected[name] for name in policy.outputs}


def written(form: Format, policy: PlainPolicy, path: Path, moments: list[Moment], facts: str) -> float:
    """Write aside, open, compare, rename. Gives the largest difference."""
    aside = path.with_name(f".{os.getpid()}.{path.name}")
    example = tuple(torch.from_numpy(array) for array in moments[0].given.values())
    if path.is_dir():
        raise UserError(f"--out: {path} is a directory; name a file, such as {path / f'policy{form.suffix}'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with own_failures("the export"):
            form.write(aside, example, facts)
            difference = largest_difference(form.open(aside), policy, moments)
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


def largest_difference(run: Run, policy: PlainPolicy, moments: list[Moment]) -> float:
    """Over every output of every moment, and over batches of one; relative where a value is larger than 1.

    Where another choice was made, how much less likely the trained policy finds it: nothing, if the two are a tie.
    """
    alone = [Moment(*(map_tree(lambda array: array[:1], side) for side in moment)) for moment in moments[:2]]
    largest = 0.0
    for given, expected in [*moments, *alone]:
        answer = run(given)
        for name, wanted in expected.items():
            got = np.asarray(answer[name])
            if got.shape != wanted.shape:
                raise Failure(f"the exported policy gives {name} of shape {got.shape} instead of {wanted.shape}")
            if policy.action.choices and name in ("action", "next.last_action"):
                gap = less_likely(expected["logits"], got - wanted + mode_of(policy, expected["logits"]), policy)
            else:
                gap = np.abs(got.astype(np.float64) - wanted) / np.maximum(1.0, np.abs(wanted))
            largest = max(largest, float(np.max(gap, initial=0.0)) if np.isfinite(gap).all() else np.inf)
    return largest


def mode_of(policy: PlainPolicy, logits: np.ndarray) -> np.ndarray:
    """The likeliest choices, [B] or [B, choices]."""
    ends = np.cumsum(policy.action.choices)[:-1]
    modes = np.stack([part.argmax(-1) for part in np.split(logits, ends, -1)], -1)
    return modes if policy.action.shape else modes[:, 0]


def less_likely(logits: np.ndarray, choice: np.ndarray, policy: PlainPolicy) -> np.ndarray:
    """How far the logits of these choices lie below the likeliest; infinitely, if they are no choices at all."""
    gaps = []
    ends = np.cumsum(policy.action.choices)[:-1]
    columns = choice.reshape(len(choice), -1).T
    for part, column in zip(np.split(logits, ends, -1), columns, strict=True):
        possible = (column >= 0) & (column < part.shape[1])
        taken = np.take_along_axis(part, np.where(possible, column, 0)[:, None], -1)[:, 0]
        gaps.append(np.where(possible, part.max(-1) - taken, np.inf))
    return np.stack(gaps)


def in_one_process(config: ResolvedConfig) -> ResolvedConfig:
    """A few environments for a moment need no processes of their own."""
    return config.replace({"env.vectorization": "sync"}) if config.env.vectorization == "async" else config


def described(policy: PlainPolicy, config: ResolvedConfig, steps: int) -> str:
    """All that a user of the file needs to know, as JSON."""

    def arrays(specs: dict[str, ArraySpec]) -> dict[str, Any]:
        return {
            name: {"shape": ["batch", *spec.shape], "dtype": spec.dtype}
            | ({"labels": list(spec.categories)} if spec.categories else {})
            for name, spec in specs.items()
        }

    facts = {
        "made_by": f"pronk {__version__}",
        "environment": config.env.game or config.env.id,
        "trained_steps": steps,
        "inputs": arrays(policy.inputs),
        "outputs": arrays(policy.outputs),
        "inside": "bytes scaled to [0, 1], labels (counted from 0) made one-hot, masks applied, rewards clipped to "
        "[-1, 1], memory cleared where first is true, the action translated to the environment's own units",
        "network": config.network.model_dump(),
    }
    return json.dumps(facts)
