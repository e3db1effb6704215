"""Write constraints for `make test-oldest`: `python tests/support/oldest_versions.py pyproject.toml constraints.txt`.

Each package that Pronk and its extra `all` require gets the lowest version that pyproject.toml allows. What they need
in turn, and the tools of development, stay at their newest. torch stays the version of constraints.txt: older ones have
no CPU build for every Python in every package index, and would bring gigabytes of CUDA with them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(\[(?P<extras>[^\]]*)\])?\s*(?P<range>.*)")


def requirements(project: dict[str, object], extra: str | None = None) -> dict[str, str]:
    """Return ranges of versions by the name of the package; of Pronk itself with this extra, if one is given."""
    listed = project["optional-dependencies"][extra] if extra else project["dependencies"]  # type: ignore[index]
    found: dict[str, str] = {}
    for line in listed:
        match = REQUIREMENT.fullmatch(line)
        assert match is not None, line
        if match["name"] == project["name"]:
            for other in match["extras"].split(","):
                found |= requirements(project, other.strip())
        else:
            found[match["name"]] = match["range"]
    return found


def oldest(pyproject: str, fixed: str) -> list[str]:
    """Return lines of a constraints file."""
    project = tomllib.loads(pyproject)["project"]
    kept = [line for line in fixed.splitlines() if line and not line.startswith("#")]
    names = {line.partition("==")[0] for line in kept}
    lowest = {
        name: re.search(r">=\s*([\w.]+)", versions)
        for name, versions in (requirements(project) | requirements(project, "all")).items()
        if name not in names
    }
    return [*kept, *(f"{name}=={match[1]}" for name, match in sorted(lowest.items()) if match)]


if __name__ == "__main__":
    print("\n".join(oldest(*(Path(name).read_text(encoding="utf-8") for name in sys.argv[1:3]))))
