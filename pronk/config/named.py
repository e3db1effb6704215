"""Things chosen by name: a built-in from a plain table, or a user's own as `module:attribute`.

A seam's table maps each name to where its implementation lives, and only the chosen one is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pronk.config.errors import nearest
from pronk.processes import session
from pronk.types import UserError


def find(kind: str, name: str, table: Mapping[str, str]) -> Any:
    """The object called `name`: a key of the table, or a `module:attribute`."""
    if name in table:
        return load(table[name])
    if ":" in name:
        return load(name)
    raise UserError(
        f"no {kind} {name!r}{nearest(name, table)}; there are {', '.join(table)}, and your own as module:attribute"
    )


def load(address: str) -> Any:
    """The attribute at `module:attribute`."""
    if address.startswith(session.PREFIX):
        return session.find(address)
    module_name, _, attribute = address.partition(":")
    module = import_module(module_name, address)
    if not hasattr(module, attribute):
        raise UserError(f"{address}: module {module_name} has no {attribute!r}{nearest(attribute, dir(module))}")
    return getattr(module, attribute)


def import_module(name: str, wanted_by: str) -> Any:
    """Import a user's module; one that is missing is a user's mistake, one that fails inside shows its traceback."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"{wanted_by!r} is not of the form module:attribute")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise UserError(f"{wanted_by}: there is no module {name!r} here or among the installed packages") from None
        raise


def import_extra(name: str, wanted_by: str, extra: str) -> Any:
    """Import an optional package, or raise UserError with the command that installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise UserError(f"{wanted_by} needs the package {name}: pip install 'pronk[{extra}]'") from None
