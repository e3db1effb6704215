"""SEAM: how off-policy data becomes a gradient. `base.py` has the protocol and the table of implementations."""

from pronk.losses.base import Loss, LossTerms, make_loss

__all__ = ["Loss", "LossTerms", "make_loss"]
