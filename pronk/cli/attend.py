"""`pronk attend`, which `pronk launch` starts on other machines."""

from __future__ import annotations

from pronk.cli.shell import app


@app.command(hidden=True)
def attend() -> None:
    """Look after one process for `pronk launch`, which speaks to this over standard input and output."""
    from pronk.cluster.attending import attend as look_after

    look_after()
