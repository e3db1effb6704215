"""SEAM: how N environments are stepped. `base.py` has the protocol and the table of implementations."""

from pronk.envs.base import VectorEnv, make_env, probe_spec

__all__ = ["VectorEnv", "make_env", "probe_spec"]
