import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pronk

ROOT = Path(pronk.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# A unit is a file of the root or a folder. It imports only units of the lines above its own; units of one line never
# import one another, and so seams do not.
ORDER = [
    {"types", "seeding"},
    {"layout", "config", "processes"},
    {"runs", "parameters", "device"},
    {"envs", "networks", "losses", "transport", "sinks", "optimisers"},
    {"metrics", "policies", "batcher", "learner"},
    {"actor", "learners"},
    {"actors", "evaluation", "plotting"},
    {"training", "exports", "watching", "cluster", "dashboard"},
    {"starting", "sharing"},
    {"bench"},
    {"cli"},
]
NOT_SEAMS = {"cli", "config", "dashboard", "evaluation", "plotting", "processes", "runs", "sharing", "watching"}
LEVEL = {unit: level for level, units in enumerate(ORDER) for unit in units}

WHERE_TENSORS_ARE = {
    *("networks", "losses", "parameters", "optimisers", "device", "policies", "batcher", "learner", "learners"),
    *("evaluation", "exports", "training", "starting", "bench"),
}


def is_program(file):
    """What runs as a process of its own: nobody imports it, so it may import anything."""
    return file.name.endswith("_process.py") or file.name == "__main__.py"


def unit_of(file):
    return file.relative_to(ROOT).with_suffix("").parts[0]


def module_of(file):
    return ".".join(["pronk", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


def named_by(node):
    """The modules that an import statement names; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide where they point"
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def imports(tree):
    """Every import, wherever it stands."""
    return [name for node in ast.walk(tree) for name in named_by(node)]


def at_import_time(node):
    """Without what functions import when they are called, and without what only type checkers read."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return []
    return named_by(node) + [name for child in ast.iter_child_nodes(node) for name in at_import_time(child)]


def parsed(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def test_every_unit_has_a_place_in_the_order():
    units = {unit_of(file) for file in FILES} - {"__init__", "__main__"}
    assert units == set(LEVEL)
    assert sum(len(line) for line in ORDER) == len(LEVEL)


@pytest.mark.parametrize(
    "file", [file for file in FILES if file != ROOT / "__init__.py" and not is_program(file)], ids=module_of
)
def test_imports_point_one_way(file):
    here = unit_of(file)
    known = {name.split(".")[1] for name in imports(parsed(file)) if name.startswith("pronk.")}
    units = known & set(LEVEL) - {here}
    assert sorted(unit for unit in units if LEVEL[unit] >= LEVEL[here]) == []


def test_nobody_imports_a_program():
    programs = {module_of(file) for file in FILES if is_program(file)}
    assert {name for file in FILES for name in imports(parsed(file))} & programs == set()


def test_the_package_itself_imports_nothing_until_asked():
    assert [name for name in at_import_time(parsed(ROOT / "__init__.py")) if name.split(".")[0] == "pronk"] == []


def test_torch_is_imported_only_where_tensors_are():
    users = {unit_of(file) for file in FILES if any(n.split(".")[0] == "torch" for n in at_import_time(parsed(file)))}
    assert users == WHERE_TENSORS_ARE


def test_the_command_line_starts_without_torch():
    light = [
        module_of(file)
        for file in FILES
        if unit_of(file) in {"types", "layout", "config", "processes", "runs", "envs", "transport", "sinks", "cli"}
        and not is_program(file)
    ]
    assert {"pronk.cli", "pronk.transport.shared_memory"} <= set(light)
    program = f"import sys, pronk, {', '.join(light)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.stdout == "False\n", done.stderr


def test_every_module_says_what_it_is():
    assert [str(file) for file in FILES if not ast.get_docstring(parsed(file))] == []


def test_there_is_no_drawer():
    names = {part.lower() for file in FILES for part in file.relative_to(ROOT).with_suffix("").parts}
    assert names.isdisjoint({"utils", "util", "helpers", "common", "misc"})


def test_every_seam_declares_its_protocol():
    folders = {file.parent for file in FILES} - {ROOT, *(ROOT / name for name in NOT_SEAMS)}
    assert [folder.name for folder in sorted(folders) if not (folder / "base.py").is_file()] == []


def test_every_public_name_is_there():
    assert [name for name in pronk.__all__ if not hasattr(pronk, name)] == []
