"""What a user of Pronk might write: environments, a network and a loss, named in configurations as `own_parts:Name`."""

from __future__ import annotations

import itertools
import sys

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from pronk.losses import LossTerms
from pronk.losses.impala import ImpalaLoss
from pronk.networks import Network, Output
from pronk.types import ArraySpec

NOISE = spaces.Box(-np.inf, np.inf, (3,), np.float32)
VIEWS = {
    "box": NOISE,
    "dict": spaces.Dict({"here": NOISE, "label": spaces.Discrete(4)}),
    "tuple": spaces.Tuple((NOISE, spaces.Tuple((spaces.Discrete(4, start=2), NOISE)))),
}


class Diary(gym.Env):
    """Shows noise for `length` steps and pays action x 2^t, so that a return tells every action of its episode."""

    action_space = spaces.Discrete(2, start=7)
    broken = False

    def __init__(self, view: str = "box", length: int = 12, table: dict | None = None) -> None:
        if table is not None and list(table) != [1]:
            raise ValueError(f"table is {table}, not as the user wrote it")
        self.observation_space, self._length = VIEWS[view], length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._see(self.observation_space), {}

    def step(self, action):
        if self.broken:
            raise RuntimeError("the ink is dry")
        assert self.action_space.contains(action), action
        reward = float((action - 7) * 2**self._t)
        self._t += 1
        return self._see(self.observation_space), reward, self._t == self._length, False, {}

    def _see(self, space):
        if isinstance(space, spaces.Dict):
            return {key: self._see(part) for key, part in space.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._see(part) for part in space)
        if isinstance(space, spaces.Discrete):
            return int(self.np_random.integers(space.n) + space.start)
        return (10 * self.np_random.normal(size=space.shape)).astype(np.float32)


class Halves(gym.Env):
    """Every other instance plays episodes of one step that pay 0; the rest, episodes of thirty steps that pay 1."""

    observation_space, action_space = NOISE, spaces.Discrete(2)
    _instances = itertools.count()

    def __init__(self) -> None:
        self._length = 30 if next(self._instances) % 2 else 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self._t += 1
        ended = self._t == self._length
        return np.zeros(3, np.float32), float(ended and self._length > 1), ended, False, {}


class Album(gym.Env):
    """Shows pictures of noise; `places` choices of `options` each, or one, or `reals` real numbers."""

    def __init__(self, shape=(10, 10, 4), dtype="uint8", places: int = 1, options: int = 3, reals: int = 0) -> None:
        self.observation_space = spaces.Box(0, 255, tuple(shape), np.dtype(dtype).type)
        one = spaces.Discrete(options) if places == 1 else spaces.MultiDiscrete([options + i for i in range(places)])
        low, high = -np.arange(1.0, reals + 1), np.full(reals, np.inf)
        self.action_space = spaces.Box(low, high, dtype=np.float32) if reals else one

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._see(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._t += 1
        return self._see(), float(np.sum(action)), self._t == 9, False, {}

    def _see(self):
        space = self.observation_space
        brightness = self.np_random.integers(1, 256)  # else all noise looks alike
        return self.np_random.integers(0, brightness + 1, space.shape).astype(space.dtype)


class Linear(Network):
    """One layer for everything; `network.kwargs.gain` scales it at the start."""

    def __init__(self, spec, config) -> None:
        super().__init__(spec)
        self.only_layer = nn.Linear(spec.observation.size, spec.action.choices[0] + 1)
        with torch.no_grad():
            self.only_layer.weight.mul_(config.kwargs["gain"])

    def forward(self, observation, first, state):
        out = self.only_layer(observation.flatten(2))
        return Output(out[..., :-1], out[..., -1], state)


class Ticking(Network):
    """A memory of its own kind: it counts, and the count turns the policy."""

    def __init__(self, spec, config) -> None:
        super().__init__(spec)
        self.layer = nn.Linear(spec.observation.size, spec.action.choices[0] + 1)
        self.state_spec = ArraySpec((1,), "float32")

    def forward(self, observation, first, state):
        outs = []
        for seen, opens in zip(observation.flatten(2), first, strict=True):
            state = state * (~opens).float()[:, None] + 1.0
            outs.append(self.layer(seen.float()) * torch.sin(state))
        out = torch.stack(outs)
        return Output(out[..., :-1], out[..., -1], state)


class Fickle(Linear):
    """Cannot be exported: a Python number decides, which a trace takes for a constant."""

    def forward(self, observation, first, state):
        output = super().forward(observation, first, state)
        return output._replace(policy=output.policy + float(observation.sum()))


class Reinforce:
    """Reward x log pi and nothing else; `loss.kwargs.weight` scales it."""

    def __init__(self, config) -> None:
        self._weight = config.kwargs["weight"]

    def __call__(self, distribution, value, batch):
        score = (distribution.log_prob(batch.action) * batch.reward * batch.valid).mean()
        metrics = {"entropy": distribution.entropy().mean(), "my_score": score}
        return LossTerms(-self._weight * score + 0.0 * value.estimate.sum(), metrics)


def broken_network(spec, config):
    """A network that cannot be made."""
    raise RuntimeError("no such layer")


class BrokenLoss(Reinforce):
    """A loss that cannot be computed."""

    def __call__(self, distribution, value, batch):
        raise RuntimeError("no such gradient")


class BrokenInFurtherLearners(ImpalaLoss):
    """Not a number after three updates, but never in learner 0."""

    calls = 0

    def __call__(self, distribution, value, batch):
        terms = super().__call__(distribution, value, batch)
        self.calls += 1
        broken = self.calls > 3 and "pronk.learners.learner_process" in sys.modules
        return terms._replace(total=terms.total * float("nan")) if broken else terms


class FailsInServer(Linear):
    """Computes everything but what actors need."""

    def policy(self, observation, first, state):
        raise RuntimeError("only the server computes a policy")
