"""`pronk learner`."""

from __future__ import annotations

from typing import Annotated

import typer

from pronk.cli.shell import Overrides, Resume, RunDir, Seed, Source, Trust, app
from pronk.cli.train import start, with_seed

ADDRESS = "127.0.0.1:5050"


@app.command()
def learner(
    source: Source,
    overrides: Overrides = None,
    run_dir: RunDir = None,
    seed: Seed = None,
    resume: Resume = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors and the address.")] = False,
    trust: Trust = False,
) -> None:
    """Train with actors that join over the network, from any machine and at any time.

    `pronk learner cartpole` listens on 127.0.0.1:5050; start actors with `pronk actor 127.0.0.1:5050`. It prints the
    address, and keeps it in the file `address` of the run directory.

    To let other machines join, give it an address that they reach, a certificate and a token:
    `pronk learner pong gateway.address=0.0.0.0:5050 gateway.certificate=cert.pem gateway.private_key=key.pem
    gateway.token_file=token` (docs/cluster.md shows how to make these).

    No actors run on this machine unless actors.count=N asks for them. The settings of the section `gateway` belong to
    this machine and are not saved with the run: give them again with --resume. Otherwise it is `pronk train`.
    """
    nobody_here = [] if resume else ["actors.count=0"]
    changes = [*nobody_here, *with_seed(overrides, seed)]
    start(source, changes, run_dir=run_dir, resume=resume, quiet=quiet, trust=trust, listen_on=ADDRESS)
