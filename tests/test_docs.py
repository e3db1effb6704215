"""The documentation: the guide's code runs, links lead somewhere, pages made from the code are up to date."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import pronk.cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDE = (DOCS / "guide.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_command(line: str, monkeypatch: Any) -> None:
    """Run a line of shell that starts with `pronk` in this process, which has imported torch already."""
    words = shlex.split(line, comments=True)
    assert words[0] == "pronk", line
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        pronk.cli.main()
    assert not ended.value.code, line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """The current directory: empty; modules written to it can be imported here and by actor processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.timeout(300)
def test_every_block_of_the_guide_runs(folder: Path, monkeypatch: Any) -> None:
    blocks = BLOCK.findall(GUIDE)
    assert len(blocks) > 6
    for language, text in blocks:
        named = re.match(r"# (\w+\.py)\n", text)
        if language == "python" and named:
            (folder / named[1]).write_text(text)
        elif language == "python":
            exec(compile(text, "guide.md", "exec"), {"__name__": "guide"})
        else:
            for line in text.splitlines():
                run_command(line, monkeypatch)
    lines = [json.loads(line) for line in (folder / "runs/corridor/metrics.jsonl").read_text().splitlines()]
    fields = set(re.findall(r"^\| `(\w+)` \|", GUIDE.partition("## Reading the metrics")[2], re.MULTILINE))
    assert fields == set().union(*lines)
    line = json.loads((folder / "runs/diary/metrics.jsonl").read_text().splitlines()[-1])
    assert (folder / "runs/diary/diary.txt").read_text().splitlines()[-1].startswith(f"{line['env_steps']} ")
    assert (folder / "runs/corridor/export/policy_torchscript.py").is_file()
    assert (folder / "shared/README.md").is_file()


def test_every_link_leads_to_a_file() -> None:
    files = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    broken = [
        f"{file.name}: {target}"
        for file in files
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8"))
        if "://" not in target and not (file.parent / target).exists()
    ]
    assert broken == []


def test_every_file_that_architecture_names_exists() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/.-]+(?:\.py|\.js|\.toml|/))`", text)) - {"base.py", "_process.py", "train.py"}
    assert len(named) > 40
    places = (ROOT / "pronk", ROOT)
    assert sorted(name for name in named if not any((place / name).exists() for place in places)) == []
    tree = text.partition("## The tree")[2].partition("## ")[0]
    units = {
        path.name for path in (ROOT / "pronk").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    shown = {name.rstrip("/") for name in re.findall(r"[\w.]+(?:\.py|/)", tree)}
    assert units - {"__init__.py", "__main__.py"} <= shown


def test_contents_of_the_guide_list_its_sections() -> None:
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^## (.*)", GUIDE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", GUIDE)) == anchors


# ---- docs/commands


def made_pages(program: str = "make_commands") -> dict[str, str]:
    spec = importlib.util.spec_from_file_location(program, DOCS / f"{program}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


def test_pages_of_commands_are_up_to_date() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "commands").glob("*.md")}
    made = made_pages()
    assert set(kept) == set(made), "run `make docs`"
    if f"typer {typer.__version__}." not in kept["README.md"]:  # another version of typer wraps lines elsewhere
        made, kept = (
            {name: set(re.findall(r"--[\w-]+", text)) for name, text in side.items()} for side in (made, kept)
        )
    assert [name for name in made if made[name] != kept[name]] == [], "run `make docs`"


def test_pages_of_the_reference_are_up_to_date() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md")}
    assert kept == made_pages("make_reference"), "run `make docs`"


# ---- README.md and README.zh.md


def parts(file: str) -> dict[str, Any]:
    """What must be the same in both languages."""
    text = (ROOT / file).read_text(encoding="utf-8").replace("README.zh.md", "README.md")  # each names the other
    prose = BLOCK.sub("", text)
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "blocks": BLOCK.findall(text),
        "links": sorted(re.findall(r"\]\(([^)]+)\)", prose)),
        "code": sorted(re.findall(r"`[^`]+`", prose)),
        "figures": sorted(re.findall(r"\d[\d,.]*\d|\d", re.sub(r"`[^`]+`|\]\([^)]+\)", "", prose))),
        "bullets": len(re.findall(r"^- ", prose, re.MULTILINE)),
        "rows": len(re.findall(r"^\|", prose, re.MULTILINE)),
    }


@pytest.mark.parametrize("part", parts("README.md"))
def test_readme_is_the_same_in_both_languages(part: str) -> None:
    assert parts("README.zh.md")[part] == parts("README.md")[part]


# ---- pages in Chinese


@pytest.mark.parametrize("page", ["guide.md", "quick-start.md"])
def test_the_code_of_chinese_pages_is_that_of_the_english_ones(page: str) -> None:
    english, chinese = (BLOCK.findall((folder / page).read_text(encoding="utf-8")) for folder in (DOCS, DOCS / "zh"))
    assert len(chinese) >= 5
    assert [block for block in chinese if block not in english] == []


@pytest.mark.slow
def test_quick_start_runs(folder: Path, monkeypatch: Any) -> None:
    blocks = BLOCK.findall((DOCS / "quick-start.md").read_text(encoding="utf-8"))
    assert {language for language, _ in blocks} >= {"python", "sh"}
    for language, text in blocks:
        if language == "python" and text.startswith("# guess.py"):
            (folder / "guess.py").write_text(text)
        elif language == "python":
            exec(compile(text, "quick-start.md", "exec"), {"__name__": "quick_start"})
        for line in text.splitlines() if language == "sh" else []:
            if not line.startswith(("pip install", "pronk dashboard")):  # the dashboard serves until it is stopped
                run_command(line, monkeypatch)
    assert json.loads((folder / "runs/guess/summary.json").read_text())["outcome"] in ("solved", "finished")
