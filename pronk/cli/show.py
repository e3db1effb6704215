"""`pronk show` and `pronk presets`: what can be trained, and with which settings."""

from __future__ import annotations

from rich.table import Table

from pronk.cli.shell import Overrides, Source, app, out, warn
from pronk.config import decided, load_config, preset_names
from pronk.config.automatic import depends_on_environment
from pronk.config.loading import read_source
from pronk.types import UserError


@app.command()
def show(source: Source, overrides: Overrides = None) -> None:
    """Print the whole configuration after overrides as YAML, which is itself a valid FILE.yaml.

    Settings that follow from the environment are decided as they would be for training.
    """
    config = load_config(source, overrides)
    if depends_on_environment(config):
        from pronk.envs.probing import spec_of

        try:
            config = decided(config, spec_of(config, warn))
        except UserError as error:  # such as a package that is not installed: what is known is shown all the same
            warn(f"some settings stay auto, because the environment cannot be made here: {error}")
    print(config.to_yaml(), end="")


@app.command()
def presets() -> None:
    """List the presets that come with Pronk."""
    table = Table.grid(padding=(0, 2))
    for name in preset_names():
        table.add_row(f"[bold]{name}[/]", read_source(name)[0]["description"])
    out.print(table)
