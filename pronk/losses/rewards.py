"""What rewards become before any loss sees them: `loss.reward_clip`."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def soft_asymmetric(reward: Tensor) -> Tensor:
    """Squash rewards as the paper does for DMLab-30: negative ones to [-0.3, 0], positive ones to [0, 5]."""
    squashed = reward.tanh()
    return 0.3 * squashed.clamp(max=0.0) + 5.0 * squashed.clamp(min=0.0)


REWARD_CLIPS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda reward: reward,
    "abs_one": lambda reward: reward.clamp(-1.0, 1.0),
    "soft_asymmetric": soft_asymmetric,
}
