"""The configuration of a run: `knobs.py` has every knob, `config.py` puts them together and reads them."""

from pronk.config.config import Config, assign, available_cores, load_config, preset_names, validate
from pronk.config.knobs import EnvConfig, LossConfig, NetworkConfig, OptimiserConfig, TransportConfig

__all__ = [
    "Config",
    "EnvConfig",
    "LossConfig",
    "NetworkConfig",
    "OptimiserConfig",
    "TransportConfig",
    "assign",
    "available_cores",
    "load_config",
    "preset_names",
    "validate",
]
