"""Compares an exported policy with the trained network on observations of the real environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from pronk.envs import VectorEnv
from pronk.envs.last_inputs import LastInputs
from pronk.exports.plain_policy import LAST, ArrayFunction, PlainPolicy, next_name, state_name
from pronk.seeding import evaluation_seeds
from pronk.types import Failure, Tree, leaves, map_tree

ENVS, STEPS = 8, 32
FALSE_FIRST = 0.1  # how often `first` is set inside an episode, so that clearing the state is tested too


class Sample(NamedTuple):
    """One batch of inputs from the real environment, and the outputs of the trained network."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


@torch.no_grad()
def play_samples(env: VectorEnv, policy: PlainPolicy) -> Iterator[Sample]:
    """Play STEPS steps with sampled actions, which see more states. Calls the network itself, not `PlainPolicy`."""
    network, action_spec = policy.network, env.spec.action
    generator, random = torch.Generator().manual_seed(1), np.random.default_rng(1)
    state = network.initial_state(env.count)
    action = np.zeros((env.count, *action_spec.shape), action_spec.array.dtype)
    step = env.reset(evaluation_seeds(1, env.count)[1])
    for _ in range(STEPS):
        first = step.first | (random.random(env.count) < FALSE_FIRST)
        raw = map_tree(np.copy, step.observation)
        observation = raw
        if isinstance(env, LastInputs):
            raw = {key: part for key, part in raw.items() if key not in LAST}
            observation = env.extend(raw, first, action, step.reward)
        timed = map_tree(lambda array: torch.from_numpy(array).unsqueeze(0), observation)
        parameters, after = network.policy(timed, torch.from_numpy(first).unsqueeze(0), state)
        distribution = network.distribution(parameters, timed)
        inputs = inputs_of(policy, raw, first, step.reward, state, action)
        mode = distribution.mode()[0].numpy()
        yield Sample(inputs, outputs_of(policy, env, mode, parameters[0].numpy(), after, inputs))
        state, action = after, distribution.sample(generator)[0].numpy()
        step = env.step(action)


def inputs_of(
    policy: PlainPolicy, observation: Tree, first: np.ndarray, reward: np.ndarray, state: Tree, action: np.ndarray
) -> dict[str, np.ndarray]:
    inputs = {policy.observed[path]: array for path, array in leaves(observation)}
    inputs |= {state_name(path): tensor.numpy() for path, tensor in leaves(state)}
    inputs |= {"first": first, "reward": np.asarray(reward), "state.last_action": last_action(policy, action)}
    return {name: np.ascontiguousarray(inputs[name], spec.dtype) for name, spec in policy.inputs.items()}


def outputs_of(
    policy: PlainPolicy,
    env: VectorEnv,
    mode: np.ndarray,
    parameters: np.ndarray,
    state: Tree,
    inputs: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """What `PlainPolicy` should return, from the network's output and the adapter's own translation."""
    outputs = {"action": np.asarray(env.decode(mode)), "logits": parameters}
    if policy.action.choices and policy.is_masked:
        allowed = inputs[policy.observed["action_mask"]] != 0
        outputs["logits"] = np.where(allowed, outputs["logits"], np.float32(-1e9))
    if not policy.action.choices:
        mean, log_std = np.split(parameters, 2, -1)
        outputs |= {"mean": mean.reshape(mode.shape), "log_std": log_std.reshape(mode.shape)}
    outputs |= {next_name(state_name(path)): tensor.numpy() for path, tensor in leaves(state)}
    outputs["next.last_action"] = last_action(policy, mode)
    return {name: outputs[name] for name in policy.outputs}


def last_action(policy: PlainPolicy, action: np.ndarray) -> np.ndarray:
    """Return the action as the network sees it in the next step: choices from 1, because 0 means no action."""
    return action + 1 if policy.action.choices else action


def largest_difference(function: ArrayFunction, policy: PlainPolicy, samples: list[Sample]) -> float:
    """The largest difference over all outputs and samples, and over batches of one; relative above 1.

    A different discrete choice counts by how much lower its logit is: 0 for a tie, which may be resolved either way.
    """
    single = [Sample(*(map_tree(lambda array: array[:1], side) for side in sample)) for sample in samples[:2]]
    largest = 0.0
    for inputs, expected in [*samples, *single]:
        outputs = function(inputs)
        for name, wanted in expected.items():
            got = np.asarray(outputs[name])
            if got.shape != wanted.shape:
                raise Failure(f"the exported policy gives {name} of shape {got.shape}, expected {wanted.shape}")
            if policy.action.choices and name in ("action", "next.last_action"):
                gap = logit_gap(policy, expected["logits"], got - wanted)
            else:
                gap = np.abs(got.astype(np.float64) - wanted) / np.maximum(1.0, np.abs(wanted))
            largest = max(largest, float(np.max(gap, initial=0.0)) if np.isfinite(gap).all() else np.inf)
    return largest


def logit_gap(policy: PlainPolicy, logits: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """How far below the largest logit the choices lie that are `shift` away from it; infinite for invalid choices."""
    gaps = []
    parts = np.split(logits, np.cumsum(policy.action.choices)[:-1], -1)
    for part, column in zip(parts, shift.reshape(len(shift), -1).T, strict=True):
        choice = part.argmax(-1) + column
        valid = (choice >= 0) & (choice < part.shape[1])
        taken = np.take_along_axis(part, np.where(valid, choice, 0)[:, None], -1)[:, 0]
        gaps.append(np.where(valid, part.max(-1) - taken, np.inf))
    return np.stack(gaps)
