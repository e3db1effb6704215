"""SEAM: where actions are chosen. `base.py` has the protocols and the table of implementations."""

from pronk.policies.base import (
    Inference,
    InferenceSetup,
    Policy,
    RemoteActing,
    check_inference,
    make_inference,
    make_policy,
)

__all__ = [
    "Inference",
    "InferenceSetup",
    "Policy",
    "RemoteActing",
    "check_inference",
    "make_inference",
    "make_policy",
]
