"""The shape of the package: which part may import which, and what every module and folder must have."""

import ast
import graphlib
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import pronk

ROOT = Path(pronk.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# A unit is a file at the root of the package or a folder. It may import units of the layers before its own, and of its
# own layer too, as long as there is no circle. Seams never import one another.
LAYERS = {
    "ground": {
        "types",
        "seeding",
        "layout",
        "config",
        "processes",
        "runs",
        "parameters",
        "device",
        "metrics",
        "schedules",
    },
    "seams": {"envs", "networks", "losses", "optimisers", "transport", "sinks", "learners"},
    "story": {
        "policies",
        "actor",
        "replay",
        "pacing",
        "batcher",
        "learner",
        "cloning",
        "broken_batches",
        "actors",
        "evaluation",
        "training",
    },
    "tools": {
        "starting",
        "trainer",
        "bench",
        "cluster",
        "dashboard",
        "debugging",
        "exports",
        "planning",
        "plotting",
        "populations",
        "sharing",
        "sweeps",
        "watching",
    },
    "commands": {"cli"},
}
LAYER = {unit: number for number, units in enumerate(LAYERS.values()) for unit in units}

# What the command line and a starting actor import: torch alone takes two seconds.
WITHOUT_TORCH = {
    *("types", "seeding", "layout", "config", "processes", "runs", "metrics", "schedules"),
    *("envs", "transport", "sinks", "cluster", "dashboard", "planning", "plotting", "populations", "sweeps", "cli"),
}


def is_program(file):
    """A module that is run as a process: nothing imports it, so it may import anything."""
    return file.name.endswith("_process.py") or file.name == "__main__.py"


def unit_of(file):
    return file.relative_to(ROOT).with_suffix("").parts[0]


def module_of(file):
    return ".".join(["pronk", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


def named_by(node):
    """The modules that a node names if it is an import statement."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide where they point"
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def imports(tree):
    """Every import, also those inside functions."""
    return [name for node in ast.walk(tree) for name in named_by(node)]


def at_import_time(node):
    """The imports that run when the module is imported: not those inside functions or for type checkers."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return []
    return named_by(node) + [name for child in ast.iter_child_nodes(node) for name in at_import_time(child)]


def parsed(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def imported_units(file):
    return {name.split(".")[1] for name in imports(parsed(file)) if name.startswith("pronk.")} & set(LAYER)


def test_every_unit_is_in_one_layer():
    units = {unit_of(file) for file in FILES} - {"__init__", "__main__"}
    assert units == set(LAYER)
    assert sum(len(units) for units in LAYERS.values()) == len(LAYER)


@pytest.mark.parametrize(
    "file", [file for file in FILES if file != ROOT / "__init__.py" and not is_program(file)], ids=module_of
)
def test_imports_point_one_way(file):
    here = unit_of(file)
    highest = LAYER[here] - (here in LAYERS["seams"])
    assert sorted(unit for unit in imported_units(file) - {here} if LAYER[unit] > highest) == []


def test_there_is_no_circle():
    graph = {unit: set() for unit in LAYER}
    for file in FILES:
        if unit_of(file) in graph and not is_program(file):
            graph[unit_of(file)] |= imported_units(file) - {unit_of(file)}
    assert set(graphlib.TopologicalSorter(graph).static_order()) == set(LAYER)  # raises CycleError


def test_programs_are_not_imported():
    programs = {module_of(file) for file in FILES if is_program(file)}
    assert {name for file in FILES for name in imports(parsed(file))} & programs == set()


def test_import_pronk_loads_no_submodule():
    assert [name for name in at_import_time(parsed(ROOT / "__init__.py")) if name.split(".")[0] == "pronk"] == []


def test_the_command_line_starts_without_torch():
    light = [module_of(file) for file in FILES if unit_of(file) in WITHOUT_TORCH and not is_program(file)]
    assert {"pronk.cli", "pronk.transport.shared_memory"} <= set(light)
    program = f"import sys, pronk, {', '.join(light)}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.stdout == "False\n", done.stderr


def test_every_module_has_a_docstring():
    assert [str(file) for file in FILES if not ast.get_docstring(parsed(file))] == []


def test_no_module_is_called_utils():
    names = {part.lower() for file in FILES for part in file.relative_to(ROOT).with_suffix("").parts}
    assert names.isdisjoint({"utils", "util", "helpers", "common", "misc"})


def test_a_folder_that_says_it_is_a_seam_declares_its_protocol():
    packages = [file for file in FILES if file.name == "__init__.py" and file.parent != ROOT]
    seams = {file.parent for file in packages if (ast.get_docstring(parsed(file)) or "").startswith("SEAM: ")}
    assert {ROOT / unit for unit in LAYERS["seams"] if (ROOT / unit).is_dir()} <= seams
    assert sorted(folder.name for folder in seams if not (folder / "base.py").is_file()) == []


def test_every_public_name_exists():
    assert [name for name in pronk.__all__ if not hasattr(pronk, name)] == []


def test_no_two_test_files_share_a_name():
    """Pytest imports them by their bare names: of two with one name, only the first can be collected."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_messages_of_the_library_name_no_options_of_the_command_line():
    found = [
        f"{module_of(file)}: {text.value}"
        for file in FILES
        if unit_of(file) != "cli"
        for call in ast.walk(parsed(file))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("UserError", "Failure", "GroupEnded")
        for text in ast.walk(call)
        if isinstance(text, ast.Constant) and re.search(r"(?<![\w-])--[a-z]", str(text.value))
    ]
    assert [line for line in found if "ray start --head" not in line] == []
