"""What a peer is: how it is installed, which program runs it, and which of the works it can do.

A driver is a program that runs in the peer's own virtual environment, does one work and prints one JSON object as its
last line. drivers/measuring.py has its command line and its clock, so that all of them measure alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
DRIVERS = HERE / "drivers"
REQUIREMENTS = HERE / "requirements"

# What each work measures, in the order in which they are run and shown.
WORKS = {
    "cartpole": "CartPole-v1, trained steps/s",
    "solve": "CartPole-v1, seconds from the prompt to 475",
    "pong": "Pong 84x84x4 with the Nature network, trained steps/s",
    "halfcheetah": "HalfCheetah, return after five minutes",
}


class Checkout(NamedTuple):
    """A source tree that the package index does not have; the reader clones it."""

    name: str
    url: str
    commit: str
    """The one that was measured; others may work."""


class Venv(NamedTuple):
    """A virtual environment, with requirements/NAME.txt in it."""

    name: str
    checkout: Checkout | None = None
    before: tuple[str, ...] = ()
    """Installed first: what a package without build isolation needs to be built."""
    isolated: bool = True
    variables: Mapping[str, str] = {}
    """Set while it is installed."""
    hidden: str | None = None
    """A program that is not found while it is installed: folders that have it are left out of PATH."""
    undefined: str | None = None
    """A list that its setup.py uses without having made it; it is empty during the installation."""


class Peer(NamedTuple):
    """A trainer, or one of its algorithms."""

    label: str
    driver: str
    venv: Venv | None
    """None: the Python that runs these scripts."""
    works: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    """What the driver is told besides the work, such as the algorithm."""


SB3 = Venv("sb3")
RLLIB = Venv("rllib")
SAMPLE_FACTORY = Venv("sample_factory")
CLEANRL = Venv(
    "cleanrl",
    Checkout("cleanrl", "https://github.com/vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb"),
)
TORCHBEAST = Venv(
    "torchbeast",
    Checkout(
        "torchbeast", "https://github.com/facebookresearch/torchbeast", "0af07b051a2176a8f9fd20c36891ba2bba6bae68"
    ),
)
# setup.py of PufferLib 3.0 imports numpy and torch, and fetches raylib for its own environments unless told not to;
# then it ends with a NameError. Where it finds nvcc it compiles for CUDA, which fails with a CPU build of torch.
PUFFERLIB = Venv(
    "pufferlib",
    before=("setuptools<81", "wheel", "cython", "numpy<2", "torch"),
    isolated=False,
    variables={"NO_OCEAN": "1"},
    hidden="nvcc",
    undefined="c_extension_paths",
)
VENVS = {venv.name: venv for venv in (SB3, RLLIB, SAMPLE_FACTORY, CLEANRL, TORCHBEAST, PUFFERLIB)}

EVERY = tuple(WORKS)
PEERS = {
    "pronk": Peer("Pronk", "drive_pronk.py", None, EVERY),
    "sb3-a2c": Peer("SB3 A2C", "drive_sb3.py", SB3, EVERY, ("a2c",)),
    "sb3-ppo": Peer("SB3 PPO", "drive_sb3.py", SB3, EVERY, ("ppo",)),
    "sample-factory": Peer("Sample Factory APPO", "drive_sample_factory.py", SAMPLE_FACTORY, EVERY),
    "rllib-impala": Peer("RLlib IMPALA", "drive_rllib.py", RLLIB, EVERY, ("impala",)),
    "rllib-appo": Peer("RLlib APPO", "drive_rllib.py", RLLIB, EVERY, ("appo",)),
    "cleanrl": Peer("CleanRL PPO", "drive_cleanrl.py", CLEANRL, EVERY),
    "pufferlib": Peer("PufferLib PPO", "drive_pufferlib.py", PUFFERLIB, EVERY, ("serial",)),
    "pufferlib-workers": Peer("PufferLib PPO, 2 workers", "drive_pufferlib.py", PUFFERLIB, EVERY, ("workers",)),
    "torchbeast": Peer("TorchBeast", "drive_torchbeast.py", TORCHBEAST, ("pong",)),
}
