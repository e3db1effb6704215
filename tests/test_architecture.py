import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pronk

ROOT = Path(pronk.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Imports point upwards in this list: a unit (a file of the root, or a folder) knows only what stands above its line.
# The units of one line never know one another; so seams do not.
ORDER = [
    {"types", "explain", "seeding", "interrupts", "plain_yaml", "lifeline", "child", "knobs", "status_file"},
    {"layout", "config", "named", "parameters", "failures", "atari_scores", "freed_memory", "json_lines"},
    {"runs", "xingtian"},
    {"envs", "networks", "losses", "transport", "sinks"},  # the seams of the story
    {"metrics", "checkpoint", "policy", "optimisers"},
    {"actor", "batcher", "learner", "learners", "broken_batch"},
    {"launch", "fleet", "plotting", "exports"},
    {"evaluation", "evaluator"},
    {"watching", "evaluator_process"},
    {"training"},
    {"starting"},
    {"bench", "learner_process", "card", "dashboard"},
    {"exporting"},
    {"hub"},
    {"cli"},
    {"__main__"},
]
NOT_SEAMS = {"cli", "dashboard", "plotting", "watching"}  # folders of parts that are not interchangeable
LEVEL = {unit: level for level, units in enumerate(ORDER) for unit in units}

WHERE_TENSORS_ARE = {
    *("networks", "losses", "parameters", "optimisers", "policy", "learner"),
    *("batcher", "checkpoint", "evaluation", "training", "starting", "bench", "learners", "broken_batch"),
    *("exports", "exporting"),
}


def unit_of(file):
    return file.relative_to(ROOT).with_suffix("").parts[0]


def named_by(node):
    """The modules that an import statement names; none for any other node."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide where they point"
        return [node.module, *(f"pronk.{alias.name}" for alias in node.names if node.module == "pronk")]
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
    units = {unit_of(file) for file in FILES} - {"__init__"}
    assert units == set(LEVEL)
    assert sum(len(line) for line in ORDER) == len(LEVEL)


@pytest.mark.parametrize("file", [file for file in FILES if file != ROOT / "__init__.py"], ids=lambda file: file.name)
def test_imports_point_one_way(file):
    here = unit_of(file)
    known = {name.split(".")[1] for name in imports(parsed(file)) if name.startswith("pronk.")}
    units = known & set(LEVEL) - {here}
    assert sorted(unit for unit in units if LEVEL[unit] >= LEVEL[here]) == []


def test_the_package_itself_imports_nothing_until_asked():
    assert [name for name in at_import_time(parsed(ROOT / "__init__.py")) if name.split(".")[0] == "pronk"] == []


def test_torch_is_imported_only_where_tensors_are():
    users = {unit_of(file) for file in FILES if any(n.split(".")[0] == "torch" for n in at_import_time(parsed(file)))}
    assert users == WHERE_TENSORS_ARE


def test_what_needs_no_tensors_runs_without_torch():
    light = [
        ".".join(["pronk", *file.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")
        for file in FILES
        if unit_of(file) not in WHERE_TENSORS_ARE | {"actor", "evaluator", "hub", "__main__"}
        and file.name not in ("serial.py", "joining.py", "fleet.py", "launching.py", "ray_cluster.py")
    ]
    assert {"pronk", "pronk.cli", "pronk.transport.shared_memory", "pronk.launch.local"} <= set(light)
    program = f"import sys, {', '.join(light)}; print('torch' in sys.modules)"
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
