"""The configuration of a run.

`knobs.py` has every knob; `config.py` puts them together (`Config`); `loading.py` reads one from a preset, a file and
overrides; `resolved.py` decides what is `auto` (`ResolvedConfig`, which everything that runs takes).
"""

from pronk.config.config import Config, assign
from pronk.config.cores import available_cores
from pronk.config.knobs import EnvConfig, LossConfig, NetworkConfig, OptimiserConfig, TransportConfig
from pronk.config.loading import load_config, preset_names, read_yaml, validate
from pronk.config.resolved import Rank, ResolvedConfig, record, resolve

__all__ = [
    "Config",
    "EnvConfig",
    "LossConfig",
    "NetworkConfig",
    "OptimiserConfig",
    "Rank",
    "ResolvedConfig",
    "TransportConfig",
    "assign",
    "available_cores",
    "load_config",
    "preset_names",
    "read_yaml",
    "record",
    "resolve",
    "validate",
]
