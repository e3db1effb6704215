"""`pronk learner`."""

from __future__ import annotations

from typing import Annotated

import typer

from pronk.cli.shell import Overrides, Resume, RunDir, Seed, Source, app
from pronk.cli.train import train
from pronk.config import load_config

ADDRESS = "127.0.0.1:5050"


@app.command()
def learner(
    source: Source,
    overrides: Overrides = None,
    run_dir: RunDir = None,
    seed: Seed = None,
    resume: Resume = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors and where it listens.")] = False,
) -> None:
    """Train with actors that join over the network, from any machine and at any time.

    `pronk learner cartpole` waits at 127.0.0.1:5050; `pronk actor 127.0.0.1:5050` plays for it. For other machines:
    `pronk learner pong transport.address=0.0.0.0:5050 transport.certificate=cert.pem transport.private_key=key.pem
    transport.token_file=token`. Actors of this machine play along with actors.count=N. Where it listens is said, and
    is in the file `address` of the run directory. Otherwise it is `pronk train`.
    """
    own = [] if resume or load_config(source).transport.address else [f"transport.address={ADDRESS}"]
    nobody = [] if resume else ["actors.count=0"]
    train(source, [*own, *nobody, *(overrides or [])], run_dir, seed, resume, quiet)
