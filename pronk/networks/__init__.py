"""SEAM: observation -> policy and value. `base.py` has the class to derive from and the table of implementations."""

from pronk.networks.base import Network, Output, has_plain_distribution, make_network

__all__ = ["Network", "Output", "has_plain_distribution", "make_network"]
