"""The documentation as a site: built without a network, every link resolves, search finds every setting and command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from browser import browser, missing
from typer.main import get_command

import pronk.cli  # noqa: F401 - where the commands join the app
from pronk.cli.shell import app
from pronk.config.reference import knobs

pytest.importorskip("material", reason="the site needs pip install 'pronk[docs]'")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the warnings of mkdocs as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Page(HTMLParser):
    """The links, resources and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "alternate", "next", "prev"):
            self.loaded.append(given.get("href", ""))
        elif tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loaded.append(given["src"])


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 25
    broken = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if path.name == "404.html":  # its links start at the root of a server
                continue
            if not target.exists():
                broken.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{path.relative_to(site)}: {link} (no such section)")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert [one for one in Page(path).loaded if re.match(r"(https?:)?//", one)] == [], path


def test_search_knows_every_setting_and_every_command(site: Path) -> None:
    index = (site / "search/search_index.js").read_text(encoding="utf-8")
    found = json.loads(index[index.index("{") : index.rindex("}") + 1])["docs"]
    titles = {entry["title"].replace("&#95;", "_") for entry in found}
    assert {knob.path for knob in knobs()} <= titles
    commands = [name for name, command in get_command(app).commands.items() if not command.hidden]
    assert {f"pronk {name}" for name in commands} <= titles


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_search_works_in_a_browser_without_a_server(site: Path) -> None:
    links = "return [...document.querySelectorAll('.md-search-result__link')].map((link) => link.href)"
    with browser() as driver:
        # the Chinese word is in the middle of sentences
        for word, page in (("entropy_cost", "reference/settings.html"), ("学习率", "zh/guide.html")):
            driver.get((site / "index.html").as_uri() + f"?q={word}")
            for _ in range(100):
                found = driver.execute_script(links)
                if any(page in link for link in found):
                    break
                driver.execute_async_script("setTimeout(arguments[0], 100)")
            assert any(page in link for link in found), word
        errors = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
        assert errors == []
