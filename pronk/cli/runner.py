"""`pronk runner`, which `pronk launch` starts on other machines."""

from __future__ import annotations

from pronk.cli.shell import app


@app.command(hidden=True)
def runner() -> None:
    """Run one process for `pronk launch`, which sends commands over standard input."""
    from pronk.cluster.process_runner import serve_stdio

    serve_stdio()
