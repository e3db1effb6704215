"""The configuration of a run.

`knobs.py` has every knob of an experiment, `host.py` those of a machine; `config.py` puts them together (`Config`);
`loading.py` reads one from a preset, a file and overrides; `resolved.py` decides what is `auto` (`ResolvedConfig`, for
everything that runs).
"""

from pronk.config.automatic import decided
from pronk.config.config import Config
from pronk.config.host import GatewayConfig
from pronk.config.knobs import EnvConfig, NetworkConfig, OptimiserConfig, ReplayConfig
from pronk.config.loading import load_config, override, preset_names, read_yaml, recorded, validate
from pronk.config.machine import available_cores, memory_bytes
from pronk.config.resolved import Rank, ResolvedConfig, ResolvedLoss, ResolvedOptimiser, record, resolve

__all__ = [
    "Config",
    "EnvConfig",
    "GatewayConfig",
    "NetworkConfig",
    "OptimiserConfig",
    "Rank",
    "ReplayConfig",
    "ResolvedConfig",
    "ResolvedLoss",
    "ResolvedOptimiser",
    "available_cores",
    "decided",
    "load_config",
    "memory_bytes",
    "override",
    "preset_names",
    "read_yaml",
    "record",
    "recorded",
    "resolve",
    "validate",
]
