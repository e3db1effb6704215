"""Known illnesses of a training, recognised from its metrics; each names the setting to try.

A pure function of the lines of metrics: no clock, no files, no torch. An illness is reported once, when its sign was
there in every line of a window, and counts as over when the sign was in none. docs/diagnosis.md explains each of them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pronk.config import ResolvedConfig
from pronk.types import ActionSpec

Line = dict[str, Any]

# A window is at least as long as both. One line is too noisy, and the first seconds of a run are like no others.
WINDOW_LINES = 10
WINDOW_SECONDS = 20.0

# Healthy runs of CartPole and of six Atari games stay below a third of these (tests/metrics/test_diagnosis.py).
FAR_ABOVE_CLIP = 20.0  # gradient norm / clip
DROWNED = 100.0  # weighted value loss / all other terms
IDLE = 0.8  # share of the time in which the learner waits

LARGE_ERROR = 3.0  # of values, where they have no scale of their own
STUCK_ENTROPY, COLLAPSED_ENTROPY = 0.98, 0.02  # shares of the largest entropy of discrete choices
COLLAPSED_REAL = -3.0  # nats per real number: a standard deviation of 0.012 where actions span 2
LEAST_STEPS, LEAST_UPDATES, LEAST_EPISODES = 50_000, 500, 100  # before learning is judged
CLEARLY = 0.05  # a return that differs by less than this share, or by two standard errors, does not differ


@dataclass
class Note:
    """One illness that was found."""

    illness: str
    message: str  # what the metrics show, and the setting to try; one line
    env_steps: int  # when it was found
    wall_seconds: float
    over: bool = False


class Illness(NamedTuple):
    """A known problem: how to recognise it, and the message about it."""

    name: str
    sign: Callable[[Line], bool]  # whether a line of metrics shows it
    words: Callable[[Line], str]


class Diagnosis:
    """Checks every line of metrics of one run."""

    def __init__(self, config: ResolvedConfig, action: ActionSpec, resumed: bool = False) -> None:
        """Args:
        config: of the run.
        action: what the agent chooses.
        resumed: the run has played before, so its next episodes are not those of an untrained policy.
        """
        self._config, self._action, self._resumed = config, action, resumed
        self._window: deque[Line] = deque()
        self._first: Line | None = None  # of the untrained policy
        self._returns: set[float] = set()  # different returns so far, as far as it matters: at most two
        self.notes: list[Note] = []
        self._illnesses = (
            Illness("value loss", self._is_drowned, self._say_drowned),
            Illness("gradient norm", self._is_clipped, self._say_clipped),
            Illness("no reward", self._has_no_reward, self._say_no_reward),
            Illness("entropy stuck", self._is_stuck, self._say_stuck),
            Illness("entropy collapsed", self._has_collapsed, self._say_collapsed),
            Illness("worse than random", self._is_worse, self._say_worse),
            Illness("learner idle", self._is_idle, self._say_idle),
        )

    def look(self, line: Line) -> list[Note]:
        """Check the next line of metrics. Returns what was newly found; `notes` has everything so far."""
        self._remember(line)
        if not self._has_window():
            return []
        known = {note.illness: note for note in self.notes}
        new = []
        for illness in self._illnesses:
            signs = [illness.sign(each) for each in self._window]
            note = known.get(illness.name)
            if note is not None:
                note.over = not any(signs) or (note.over and not all(signs))
            elif all(signs):
                new.append(Note(illness.name, illness.words(line), line["env_steps"], line["wall_seconds"]))
        self.notes += new
        return new

    def _remember(self, line: Line) -> None:
        self._window.append(line)
        while len(self._window) > WINDOW_LINES and self._seconds(1) >= WINDOW_SECONDS:
            self._window.popleft()
        value, std = line["episode_return"], line.get("episode_return_std")
        if value is None or std is None:
            return
        if len(self._returns) < 2:
            self._returns |= {value} if std == 0 else {value - std, value + std}
        enough = max(20, 2 * self._config.actors.envs * self._config.actors.count)
        if self._first is None and not self._resumed and line["episodes"] >= enough:
            self._first = line

    def _seconds(self, start: int) -> float:
        return self._window[-1]["wall_seconds"] - self._window[start]["wall_seconds"]

    def _has_window(self) -> bool:
        return len(self._window) >= WINDOW_LINES and self._seconds(0) >= WINDOW_SECONDS

    # Value loss and gradient

    def _is_drowned(self, line: Line) -> bool:
        baseline, policy, entropy = (line.get(name) for name in ("baseline_loss", "policy_loss", "entropy"))
        if baseline is None or policy is None or entropy is None:  # a loss of the user's
            return False
        others = abs(policy) + abs(line.get("entropy_cost", 0.0) * entropy)
        clip = self._config.optimiser.max_gradient_norm
        is_clipped = clip is not None and line["gradient_norm"] > clip
        return is_clipped and self._config.loss.baseline_cost * baseline > DROWNED * others

    def _say_drowned(self, line: Line) -> str:
        return (
            f"the value loss ({line['baseline_loss']:,.3g}) drowns the policy's ({line['policy_loss']:.2g}): "
            f"its errors are large; try {self._smaller_values(line)}"
        )

    def _is_clipped(self, line: Line) -> bool:
        clip = self._config.optimiser.max_gradient_norm
        return clip is not None and line["gradient_norm"] > FAR_ABOVE_CLIP * clip and not self._is_drowned(line)

    def _say_clipped(self, line: Line) -> str:
        clip = self._config.optimiser.max_gradient_norm
        return (
            f"the gradient norm ({line['gradient_norm']:,.3g}) stays far above optimiser.max_gradient_norm={clip:g}: "
            f"observations or errors are large; try {self._smaller_values(line)}"
        )

    def _smaller_values(self, line: Line) -> str:
        """Suggest what brings values and observations to the order of 1."""
        network = self._config.network
        has_own_scale = network.popart or network.value == "hl_gauss"
        baseline = line.get("baseline_loss") or 0.0  # of a loss of the user's it may be anything
        error = math.sqrt(2 * baseline) if 0 < baseline < math.inf else 1.0
        if error > LARGE_ERROR and not has_own_scale:
            scale = self._config.loss.reward_scale * 10.0 ** -round(math.log10(error))
            return f"network.popart=true, or loss.reward_scale={scale:g}"
        if not network.normalise:
            return "network.normalise=true"
        return f"optimiser.learning_rate={self._config.optimiser.learning_rate / 3:.1g}"

    # Rewards and returns

    def _has_no_reward(self, line: Line) -> bool:
        return (
            not self._resumed
            and len(self._returns) == 1
            and line["episodes"] >= LEAST_EPISODES
            and line["env_steps"] >= LEAST_STEPS
        )

    def _say_no_reward(self, line: Line) -> str:
        value = line["episode_return"]
        seen = "no reward was seen" if value == 0 else f"every episode returned {value:g}"
        more = max(0.01, 3 * self._config.loss.entropy_cost)
        return (
            f"{seen} in {line['episodes']:,} episodes: nothing can be learnt from it; try loss.entropy_cost={more:g}, "
            "longer episodes, or a reward that also pays for a part of the way"
        )

    def _is_worse(self, line: Line) -> bool:
        return self._is_late(line) and self._compared(line) < 0

    def _say_worse(self, line: Line) -> str:
        assert self._first is not None, "compared with it"
        rate = self._config.optimiser.learning_rate / 3
        return (
            f"the return ({line['episode_return']:.4g}) is below that of the first, random episodes "
            f"({self._first['episode_return']:.4g}); try optimiser.learning_rate={rate:.1g}"
        )

    def _compared(self, line: Line) -> int:
        """Return 1 if the return is clearly above that of the untrained policy, -1 if clearly below, else 0."""
        # There is a return without a spread where all that had finished an episode have left.
        if self._first is None or line["episode_return"] is None or line["episode_return_std"] is None:
            return 0
        difference = line["episode_return"] - self._first["episode_return"]
        noise = 2 * math.hypot(standard_error(line), standard_error(self._first))
        if abs(difference) <= max(noise, CLEARLY * abs(self._first["episode_return"])):
            return 0
        return 1 if difference > 0 else -1

    def _is_late(self, line: Line) -> bool:
        """Return whether the policy should have learnt something by now, and can be compared with the untrained one."""
        enough = line["env_steps"] >= LEAST_STEPS and line["updates"] >= LEAST_UPDATES
        return enough and self._first is not None and self._first is not line

    # Entropy

    def _is_stuck(self, line: Line) -> bool:
        largest, entropy = self._largest_entropy, line.get("entropy")
        if largest is None or entropy is None or self._has_no_reward(line):
            return False
        return self._is_late(line) and entropy > STUCK_ENTROPY * largest and self._compared(line) <= 0

    def _say_stuck(self, line: Line) -> str:
        return (
            f"the entropy ({line['entropy']:.3g}) stays at its maximum: the policy is still random; try "
            f"loss.entropy_cost={self._config.loss.entropy_cost / 10:g}"
        )

    def _has_collapsed(self, line: Line) -> bool:
        entropy, largest = line.get("entropy"), self._largest_entropy
        if entropy is None:
            return False
        numbers = max(1, math.prod(self._action.shape))
        limit = COLLAPSED_REAL * numbers if largest is None else COLLAPSED_ENTROPY * largest
        return self._is_late(line) and entropy < limit and self._compared(line) <= 0

    def _say_collapsed(self, line: Line) -> str:
        more = max(0.001, 3 * self._config.loss.entropy_cost)
        return (
            f"the entropy has collapsed to {line['entropy']:.2g} without a better return: the policy explores no more; "
            f"try loss.entropy_cost={more:g} or optimiser.learning_rate={self._config.optimiser.learning_rate / 3:.1g}"
        )

    @property
    def _largest_entropy(self) -> float | None:
        """In nats, of discrete choices; None for real numbers."""
        return math.fsum(map(math.log, self._action.choices)) or None

    # Speed

    def _is_idle(self, line: Line) -> bool:
        return line["learner_waits"] > IDLE

    def _say_idle(self, line: Line) -> str:
        passes, count = self._config.learner.passes, self._config.actors.count
        more = f"actors.count={2 * max(1, count)}"
        if passes != "idle":  # else each step is learnt from as often as there is time
            more = f"learner.passes={min(100, 2 * passes)} to learn more from each step"
        return (
            f"the learner waits for actors {line['learner_waits']:.0%} of the time: the environment is slow; try "
            f"{more}, or actors on other machines (docs/cluster.md)"
        )


def standard_error(line: Line) -> float:
    """Return the standard error of a line's mean return, or a little more: it may be of more than 100 episodes."""
    return line["episode_return_std"] / math.sqrt(min(100, max(1, line["episodes"])))
