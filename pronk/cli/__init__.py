"""The commands: one file each, a few lines over the library. The order here is the order of `pronk --help`.

A command imports what it needs when it is called, so that `pronk --help` is instant.
"""

# ruff: noqa: F401, I001
import pronk.cli.train
import pronk.cli.learner
import pronk.cli.actor
import pronk.cli.evaluate
import pronk.cli.bench
import pronk.cli.show
from pronk.cli.shell import main

__all__ = ["main"]
