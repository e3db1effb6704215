"""`pronk launch`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pronk.cli.shell import Overrides, Resume, RunDir, Seed, Source, Trust, app
from pronk.cli.train import display_for, end_with, plan_of


@app.command()
def launch(
    source: Source,
    overrides: Overrides = None,
    hosts: Annotated[
        Path, typer.Option(metavar="FILE.csv", help="Columns role, host, port, user, key file, devices, count.")
    ] = Path("hosts.csv"),
    run_dir: RunDir = None,
    seed: Seed = None,
    resume: Resume = False,
    program: Annotated[
        str, typer.Option(metavar="COMMAND", help="How to start Pronk there, such as ~/pronk/.venv/bin/pronk.")
    ] = "pronk",
    remote_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where to work there; it must exist [default: the user's home].")
    ] = None,
    ssh_config: Annotated[Path | None, typer.Option(metavar="FILE", help="For `ssh -F`.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
    trust: Trust = False,
) -> None:
    """Train on the machines of a list, over SSH.

    `pronk launch pong --hosts hosts.csv` starts the learners and actors that the file lists, restarts those that die,
    and copies the run directory here while it grows. A row is `role,host,port,user,key file,devices,count`, such as
    `learner,alpha,,,,0,1` or `actor,beta,2222,alice,~/.ssh/id_beta,,8`. Actors join learners in turn. Ctrl-C writes a
    checkpoint and leaves nothing running there. Every machine needs Pronk and a login without a password.
    """
    from pronk.cluster.cluster_run import train_on_cluster
    from pronk.cluster.hosts import read_hosts
    from pronk.cluster.ssh import ssh_placements
    from pronk.runs.trust import remember

    rows = read_hosts(hosts)
    config, title, run_dir = plan_of(source, overrides, seed, resume, run_dir, trust)
    display, say = display_for(title, config, quiet)
    remember(config, say)
    summary = train_on_cluster(
        config,
        ssh_placements(rows, "learner", program, remote_dir, ssh_config),
        ssh_placements(rows, "actor", program, remote_dir, ssh_config),
        run_dir=run_dir,
        name=title,
        resume=resume,
        display=display,
        say=(lambda message: None) if quiet else say,
    )
    end_with(summary, quiet, f"pronk launch {{}} --resume --hosts {shlex.quote(str(hosts))}")
