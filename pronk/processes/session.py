"""Classes and functions that only this Python session has: those of a notebook cell, a script, or another function.

No other process can import them. A configuration names them `__main__:NAME`, and `share` pickles them by value into a
file without a name, which this process hands down to those that it starts:

    train(Maze) --name_of--> "__main__:Maze" --share--> unnamed file == inherited descriptor ==> child: find

A pickle can run any code. So it never comes from a run directory or over the network: only from the process that
started this one, which has the same user and machine.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import IO, Any

from pronk.types import UserError

PREFIX = "__main__:"
VARIABLE = "PRONK_SESSION"  # of the environment of a child: the number of the inherited descriptor

_made: dict[str, Any] = {}  # by name: what `name_of` was given in this process
_pickled: dict[str, bytes] = {}  # by name: shared, or inherited
_file: IO[bytes] | None = None  # that holds `_pickled`


def name_of(made: Callable[..., Any]) -> str:
    """Remember a class or function and return the name by which `find` finds it. A later one of that name replaces it.

    name_of(Maze) == "__main__:Maze"
    """
    last = str(getattr(made, "__qualname__", type(made).__name__)).rpartition(".")[2]
    name = PREFIX + (re.sub(r"\W", "", last) or "made")  # such as `<lambda>`
    _made[name] = made
    return name


def find(name: str) -> Any:
    """Return what is called `__main__:NAME`: remembered here, inherited, or an attribute of the script that runs."""
    if name not in _made and name in _pickled:
        _made[name] = pickle.loads(_pickled[name])
    if name in _made:
        return _made[name]
    attribute = name.removeprefix(PREFIX)
    main = sys.modules["__main__"]
    if hasattr(main, attribute):
        return getattr(main, attribute)
    raise UserError(
        f"{name} was defined in another Python session (a notebook or a script): use it there, or put {attribute} in a "
        f"module of its own and name it module:{attribute}"
    )


def share(names: Iterable[str]) -> None:
    """Let the processes that are started from now on find these. Raises UserError for what cannot be pickled."""
    global _file
    new = {name: pickled(name) for name in names if name in _made or name not in _pickled}
    if not new:
        return
    _pickled.update(new)
    file = tempfile.TemporaryFile(prefix="pronk-")  # noqa: SIM115 - open as long as children may be started
    file.write(pickle.dumps(_pickled))
    file.flush()
    _file = file  # those that were started before keep the old one


def pickled(name: str) -> bytes:
    """Return a class or function with its code, not only its name."""
    import cloudpickle

    try:
        return cloudpickle.dumps(find(name))
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        attribute = name.removeprefix(PREFIX)
        raise UserError(
            f"{attribute} cannot be sent to actor processes: {error}; put it in a module of its own, or train with "
            "transport=local"
        ) from None


def descriptors() -> list[int]:
    """Return what a child has to inherit, if anything is shared."""
    return [_file.fileno()] if _file is not None else []


def variables() -> dict[str, str]:
    """Return the environment variables that tell a child about it."""
    return {VARIABLE: str(_file.fileno())} if _file is not None else {}


def inherit() -> None:
    """Take over what the parent shared. Called once, when a child starts."""
    global _file
    number = os.environ.pop(VARIABLE, None)
    if number is not None:
        _file = os.fdopen(int(number), "rb")
        size = os.fstat(_file.fileno()).st_size
        _pickled.update(pickle.loads(os.pread(_file.fileno(), size, 0)))  # the offset is shared with other children
