"""What limits the speed, and the first thing to try."""

from __future__ import annotations

from typing import Any

from pronk.config import ResolvedConfig

WAITS = 0.2  # share of the time: a learner that waits longer has too few actors
FULL = 0.7  # share of the slots: if more are filled, actors wait for the learner
GOOD = 0.85  # efficiency


def advice(figures: dict[str, Any], line: dict[str, Any], config: ResolvedConfig) -> tuple[str, str]:
    """Return the part that takes the most time, and one sentence.

    Args:
        figures: medians, as `rounds.summary` makes them.
        line: of metrics, from the training that was measured.
        config: of that training.
    """
    seconds = {
        "env": 1 / figures["env"],
        "inference": 1 / figures["inference"],
        "learner": figures["passes"] / figures["learner"],
    }
    bottleneck = max(seconds, key=seconds.__getitem__)
    if figures["efficiency"] < GOOD:
        if line["learner_waits"] > WAITS:
            more = config.actors.count + 1
            return bottleneck, f"the learner waits {line['learner_waits']:.0%} of the time: try actors.count={more}"
        if line["queue"] > FULL and config.actors.count > 1:
            return bottleneck, f"actors wait for the learner: try actors.count={config.actors.count - 1}"
    share = seconds[bottleneck] / sum(seconds.values())
    return bottleneck, f"{share:.0%} of the work is {WORK[bottleneck]}"


WORK = {
    "env": "stepping environments: a faster one helps most (envpool:ID has many)",
    "inference": "choosing actions: more actors.envs per actor, or a smaller network",
    "learner": "learning: fewer learner.passes, a larger learner.batch_size or a smaller network",
}
