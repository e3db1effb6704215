"""The commands: one file each, a few lines over the library. The order here is the order of `pronk --help`.

A command imports what it needs when it is called, so that `pronk --help` is instant.
"""

# ruff: noqa: F401, I001
import pronk.cli.train
import pronk.cli.sweep
import pronk.cli.population
import pronk.cli.learner
import pronk.cli.actor
import pronk.cli.launch
import pronk.cli.runner
import pronk.cli.evaluate
import pronk.cli.watch
import pronk.cli.runs
import pronk.cli.plot
import pronk.cli.compare
import pronk.cli.export
import pronk.cli.record
import pronk.cli.push
import pronk.cli.zoo
import pronk.cli.dashboard
import pronk.cli.bench
import pronk.cli.plan
import pronk.cli.show
import pronk.cli.explain
import pronk.cli.debug
import pronk.cli.convert
from pronk.cli.shell import main

__all__ = ["main"]
