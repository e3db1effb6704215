"""What mkdocs does besides: pages from the root of the repository, links that lead out of docs/, search in Chinese."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import rjieba
from material.plugins.search import plugin as search
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "README.zh.md": "README.zh.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
PAGES |= {"CHANGELOG.md": "CHANGELOG.md", "SECURITY.md": "SECURITY.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
SHIM = "https://unpkg.com/iframe-worker/shim"


class ChineseWords:
    """Splits Chinese text into words for the search index: what the theme would use jieba for, which is abandoned."""

    @staticmethod
    def cut(text: bytes) -> list[str]:
        """Called by the theme for every run of Chinese characters."""
        return rjieba.cut(text.decode())


search.jieba = ChineseWords


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root. Every page of a command is reached from the list of commands."""
    for name, target in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / name).read_text(encoding="utf-8")))
    for file in files.documentation_pages():
        is_command = file.src_uri.startswith("commands/") and file.src_uri != "commands/README.md"
        if is_command or file.src_uri == "SECURITY.md":
            file.inclusion = file.inclusion.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links within the site lead to its pages, and show those to other files of the repository as their paths."""
    here = page.file.src_uri
    source = next((name for name, target in PAGES.items() if target == here), f"docs/{here}")

    def rewritten(match: re.Match[str]) -> str:
        picture, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        if "://" in target or target.startswith("mailto:") or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if inside is None or (ROOT / path).is_dir():
            return text if f"`{path}`" in text else f"{text} (`{path}`)"
        return f"{picture}[{text}]({posixpath.relpath(inside, posixpath.dirname(here) or '.')}{anchor})"

    return LINK.sub(rewritten, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Replace the script that the theme would load from another server."""
    return output.replace(SHIM, "../" * page.file.dest_uri.count("/") + "offline_search.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same for 404.html."""
    return output_content.replace(SHIM, "/offline_search.js")
