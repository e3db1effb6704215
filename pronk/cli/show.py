"""`pronk show` and `pronk presets`: what can be trained, and with which settings."""

from __future__ import annotations

from rich.table import Table

from pronk.cli.shell import Overrides, Source, app, out
from pronk.config import load_config, preset_names


@app.command()
def show(source: Source, overrides: Overrides = None) -> None:
    """Print the whole configuration after overrides as YAML, which is itself a valid FILE.yaml."""
    print(load_config(source, overrides).to_yaml(), end="")


@app.command()
def presets() -> None:
    """List the presets that come with Pronk."""
    table = Table.grid(padding=(0, 2))
    for name in preset_names():
        table.add_row(f"[bold]{name}[/]", load_config(name).description)
    out.print(table)
