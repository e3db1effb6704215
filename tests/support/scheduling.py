"""Which tests run in the same worker of pytest-xdist: those of a file that share a fixture of that file.

pytest-xdist has `xdist_group` marks for this, but with pytest 9.2 it ignores them without a word
(https://github.com/pytest-dev/pytest-xdist/issues/1386). Every worker then sets up every shared fixture.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling


class SharedFixtureScheduling(LoadScopeScheduling):
    """Hand out tests one by one, but keep those together that share a fixture of their module."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self.config.rootpath)


def group_of(nodeid: str, root: Path) -> str:
    """Return the file for a test that uses a fixture of its module's scope, else the test's own id."""
    file, _, test = nodeid.partition("::")
    return file if test.partition("[")[0] in sharing_functions(root / file) else nodeid


@cache
def sharing_functions(file: Path) -> frozenset[str]:
    """Return the names of a file's functions that are, or depend on, a fixture with `scope="module"`.

    The process that hands out tests does not collect them: it has only their ids, so it reads the file. A fixture is
    expected before its users.
    """
    sharing: set[str] = set()
    everyone = False
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            is_shared = "scope='module'" in decorators
            everyone |= is_shared and "autouse=True" in decorators
            if everyone or is_shared or sharing & {argument.arg for argument in node.args.args}:
                sharing.add(node.name)
    return frozenset(sharing)
