"""SEAM: where actions are chosen. `base.py` has the protocol and the table of implementations."""

from pronk.policies.base import Policy, make_policy

__all__ = ["Policy", "make_policy"]
