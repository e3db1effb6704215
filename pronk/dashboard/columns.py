"""Lines of metrics as the page draws them: a list of numbers per name."""

from __future__ import annotations

from typing import Any

from pronk.runs.reading import is_number


def columns(lines: list[dict[str, Any]]) -> dict[str, list[float | int | None]]:
    """Return a list of numbers for each name, with None where a line has none."""
    names = dict.fromkeys(name for line in lines for name, value in line.items() if number(value) is not None)
    return {name: [number(line.get(name)) for line in lines] for name in names}


def number(value: Any) -> float | int | None:
    """A finite number with as many digits as a screen can show, or None."""
    if not is_number(value):
        return None
    if isinstance(value, int):
        return value if abs(value) < 2**53 else float(value)
    return float(f"{value:.7g}")
