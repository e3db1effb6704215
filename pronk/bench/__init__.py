"""How fast this machine trains a configuration, against its own limit: `rounds.py` measures, `advice.py` explains."""

from pronk.bench.rounds import measure

__all__ = ["measure"]
