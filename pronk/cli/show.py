"""`pronk show` and `pronk presets`: what can be trained, and with which settings."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from pronk.cli.completion import complete_source
from pronk.cli.shell import Overrides, app, out, warn
from pronk.config import decided, load_config, preset_names
from pronk.config.automatic import depends_on_environment
from pronk.config.loading import read_source
from pronk.types import UserError


@app.command()
def show(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="PRESET|FILE.yaml|GYM-ID", help="What would be trained.", autocompletion=complete_source
        ),
    ] = None,
    overrides: Overrides = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print a JSON Schema of configuration files instead, for YAML editors.")
    ] = False,
) -> None:
    """Print the whole configuration after overrides as YAML, which is itself a valid FILE.yaml.

    Settings that follow from the environment are decided as they would be for training. `pronk explain` says what a
    setting means.

    With `pronk show --schema > pronk.schema.json`, and `# yaml-language-server: $schema=pronk.schema.json` as the first
    line of your file, editors complete and check its keys.
    """
    if schema:
        from pronk.config.reference import schema as made

        print(json.dumps(made(), indent=2))
        return
    if source is None:
        raise UserError("show needs what to show, such as: pronk show cartpole")
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
    described = {name: read_source(name)[0]["description"] for name in preset_names()}
    if not out.is_terminal:
        width = max(map(len, described))
        for name, description in described.items():
            print(f"{name:<{width}}  {description}")
        return
    table = Table.grid(padding=(0, 2))
    for name, description in described.items():
        table.add_row(Text(name, "bold"), Text(description))  # not markup: pronk[atari] has brackets
    out.print(table)
