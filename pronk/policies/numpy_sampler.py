"""Samples actions in NumPy, from the parameters of their distribution: for actors that need no torch.

The distributions are those of `networks/distributions.py`.
"""

from __future__ import annotations

import numpy as np

from pronk.types import EnvSpec, Tree

SHORTEST_TIME = np.finfo(np.float32).tiny
MASKED = -1e9  # the logit of a forbidden choice, as in networks/distributions.py
LOG_2_PI = float(np.log(2 * np.pi))


class NumpySampler:
    """Draws actions of one action space, with their log probabilities."""

    def __init__(self, spec: EnvSpec, seed: int) -> None:
        self._has_mask, self._action = spec.has_action_mask, spec.action
        self._random = np.random.Generator(np.random.SFC64(seed))

    def sample(self, policy: np.ndarray, observation: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Return actions [N, ...] and log probabilities [N], from `Output.policy` [N, P]. Overwrites `policy`."""
        if self._action.choices:
            return self.choices(policy, observation)
        mean, log_std = np.split(policy, 2, -1)
        return self.numbers(mean, log_std)

    def choices(self, logits: np.ndarray, observation: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Draw one option of each choice, by the exponential race: argmax of p / e with e ~ Exp(1).

        Overwrites the logits that the observation's `action_mask` forbids.
        """
        if self._has_mask:
            logits[observation["action_mask"] == 0] = MASKED
        race = log_times(self._random, logits.shape)
        actions, log_probs, start = [], [], 0
        for options in self._action.choices:
            part = slice(start, start + options)
            action, log_prob = choose(logits[:, part], race[:, part])
            actions.append(action)
            log_probs.append(log_prob)
            start += options
        if not self._action.shape:
            return actions[0], log_probs[0]
        return np.stack(actions, -1), np.sum(log_probs, 0)

    def numbers(self, mean: np.ndarray, log_std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw from independent normals with means [N, A]; `log_std` is [A] or [N, A]."""
        noise = self._random.standard_normal(mean.shape, np.float32)
        action = mean + np.exp(log_std) * noise
        log_prob = -0.5 * np.square(noise).sum(-1) - (log_std.sum(-1) + 0.5 * LOG_2_PI * log_std.shape[-1])
        return action.reshape(len(action), *self._action.shape), log_prob


def log_times(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw the logarithms of the times of an exponential race.

    In float32 one draw in many millions is exactly 0, whose logarithm would let even a forbidden option win.
    """
    return np.log(np.maximum(random.standard_exponential(shape, np.float32), SHORTEST_TIME))


def choose(logits: np.ndarray, race: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the winners of a race among options [N, P], and their log probabilities [N]."""
    logits = logits - logits.max(-1, keepdims=True)
    action = (logits - race).argmax(-1)
    rows = np.arange(len(action))
    return action, logits[rows, action] - np.log(np.exp(logits).sum(-1))
