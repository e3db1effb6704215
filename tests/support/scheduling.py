"""Which tests run in the same worker of pytest-xdist: those of a file that share a fixture of that file.

pytest-xdist has `xdist_group` marks for this, but with pytest 9.2 it ignores them without a word
(https://github.com/pytest-dev/pytest-xdist/issues/1386). Every worker then sets up every shared fixture.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling


class SharedFixtureScheduling(LoadScopeScheduling):
    """Hand out tests one by one, but keep those together that share a fixture of their module."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self.config.rootpath)


def group_of(nodeid: str, root: Path) -> str:
    """Return the file for a test that uses a fixture of its module's scope, else the test's own id."""
    file, *_, test = nodeid.partition("[")[0].split("::")
    return file if test in sharing_functions(root / file) else nodeid


@cache
def sharing_functions(file: Path) -> frozenset[str]:
    """Return the names of a file's functions and methods that are, or depend on, a fixture with `scope="module"`.

    The process that hands out tests does not collect them: it has only their ids, so it reads the file. A fixture is
    expected before its users.
    """
    sharing: set[str] = set()
    everyone = False
    for function, decorators in functions_in(ast.parse(file.read_text(encoding="utf-8"))):
        text = " ".join(map(ast.unparse, decorators))
        is_shared = "scope='module'" in text
        everyone |= is_shared and "autouse=True" in text
        used = {argument.arg for argument in function.args.args} | fixtures_of_marks(decorators)
        if everyone or is_shared or sharing & used:
            sharing.add(function.name)
    return frozenset(sharing)


def functions_in(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, list[ast.expr]]]:
    """Yield each function and each method of a class, with its decorators and those of its class."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, node.decorator_list
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield method, node.decorator_list + method.decorator_list


def fixtures_of_marks(decorators: list[ast.expr]) -> set[str]:
    """Return the names given to `pytest.mark.usefixtures`."""
    marks = [each for each in decorators if isinstance(each, ast.Call) and "usefixtures" in ast.unparse(each.func)]
    return {str(name.value) for mark in marks for name in mark.args if isinstance(name, ast.Constant)}
