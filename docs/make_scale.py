"""Writes the plans of docs/scale.md: the commands, and what they print.

`python docs/make_scale.py --measure` first measures the costs of docs/scale/*.yaml on this machine, which has to be
quiet, and keeps them beside these files. Without it the plans are made from the costs that are there.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scale.md"
SECONDS = 12
# The least target: a batch joins more unrolls than the configured actors of a small machine can have ready.
MEASURE = "docs/scale/{name}.yaml --learner-rate 62500 --target 1 --seconds {seconds}"
SCENARIOS = {
    "paper": (
        "shallow",
        "--target 250000 --frames --learner-rate 62500 --cores 32 --bandwidth 25",
    ),
    "document": (
        "deep-lstm",
        "--target 21000 --learner-rate 6200 --cores 32 --bandwidth 10",
    ),
    "ten-million": (
        "shallow",
        "--target 10000000 --frames --learner-rate 62500 --cores 64 --bandwidth 100",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure the costs first")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each measurement")
    options = parser.parse_args()
    if options.measure:
        for name in sorted({name for name, _ in SCENARIOS.values()}):
            measure(name, options.seconds)
    text = PAGE.read_text(encoding="utf-8")
    for scenario, (name, arguments) in SCENARIOS.items():
        text = with_block(text, scenario, block(name, arguments))
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)


def measure(name: str, seconds: float) -> None:
    """Write docs/scale/NAME.json: the costs alone, since the plan that comes with them is not meant."""
    made = plan(MEASURE.format(name=name, seconds=seconds))
    # The learner's cost is not measured: every plan gives it with --learner-rate.
    (ROOT / costs_file(name)).write_text(json.dumps({"costs": made["costs"]}, indent=2) + "\n", encoding="utf-8")


def block(name: str, arguments: str) -> str:
    """Return a command and its result, or how to get it."""
    arguments = f"docs/scale/{name}.yaml --costs {costs_file(name)} {arguments}"
    command = f"```bash\npronk plan {arguments}\n```\n"
    if not (ROOT / costs_file(name)).exists():
        return f"{command}\nNot measured yet: `python docs/make_scale.py --measure`, on a quiet machine."
    made = plan(arguments)["plan"]
    rows = {
        "actors": f"{made['actors']:,}",
        "learners, each with a gateway": f"{made['learners']:,}",
        "machines: learners + actors": f"{made['learners']:,} + {made['actor_machines']:,}",
        "predicted steps/s": f"{made['steps_per_second']:,.0f}",
        "predicted frames/s": f"{made['frames_per_second']:,.0f}",
        "policy lag in updates: mean, most": f"{made['policy_lag']:.1f}, {made['most_policy_lag']:,}",
        "MB/s of a learner's machine: in, out": ", ".join(f"{b / 1e6:,.0f}" for b in made["bytes_per_second"].values()),
        "busy": ", ".join(f"{part} {share:.0%}" for part, share in made["utilisation"].items()),
        "bottleneck": made["bottleneck"],
        "reached": "yes" if made["reached"] else "no",
        "left out": "; ".join(made["notes"]) or "nothing",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"{command}\n| | |\n|---|---|\n{table}\n\nAdvice: {made['advice']}."


def plan(arguments: str) -> dict[str, Any]:
    """Run `pronk plan` and return what it prints as JSON."""
    command = [sys.executable, "-m", "pronk", "plan", *shlex.split(arguments), "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)


def costs_file(name: str) -> str:
    return f"docs/scale/{name}.json"


def with_block(text: str, scenario: str, content: str) -> str:
    """Replace what is between the two marks of a scenario."""
    begin, end = f"<!-- make_scale.py writes {scenario} from here -->", f"<!-- to here: {scenario} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"{PAGE} has no place for {scenario}: {begin} ... {end}")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


if __name__ == "__main__":
    main()
