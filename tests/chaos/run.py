"""The chaos suite: faults against real runs, as many as asked for, and a table of what happened.

python tests/chaos/run.py --faults 40 --kills 10 --interrupts 10 --network 4 --seed 1 --results chaos.jsonl
python tests/chaos/run.py --table docs/results/chaos.md --results docs/results/chaos.jsonl

The faults are divided into parts, each with training runs of its own. The results of a part are added to the file when
it is over, and a part that is in the file is not run again. So a suite that was interrupted continues when the same
command is given again, and calls with different seeds add up to one table. The exit code is 1 if any fault was not
survived, and 3 if `--minutes` were over before all parts were done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:3], os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("OMP_NUM_THREADS", "1")

NOT_ALL = 3  # exit code
KILLS, INTERRUPTS, NETWORK, PACKETS, LAUNCHED = 10, 10, 4, 9, 3  # faults of a part


class Part(NamedTuple):
    """Some faults that need one another's runs."""

    name: str
    """What it is called in the results."""
    run: Callable[[Path, random.Random], Iterator[Any]]
    """Returns a `Result` for each fault."""


def parts(options: argparse.Namespace) -> Iterator[Part]:
    """All that was asked for, always in the same order."""
    from launched import over_ray, over_ssh
    from misbehaving import ENVIRONMENTS
    from network import network
    from packets import learners, packets
    from trials import interrupts, kills, live, misbehaving, sample

    for transport, faults in sample(options.faults, random.Random(options.seed)).items():
        for start in range(0, len(faults), options.per_run):
            chosen = faults[start : start + options.per_run]
            yield Part(
                f"{transport} {start} to {start + len(chosen)}",
                lambda folder, chance, transport=transport, chosen=chosen: live(transport, chosen, folder, chance),
            )
    for name, trial, count, size in (
        ("kills", kills, options.kills, KILLS),
        ("interrupts", interrupts, options.interrupts, INTERRUPTS),
        ("network", network, options.network, NETWORK),
        ("packets", packets, options.packets, PACKETS),
        ("learners", learners, options.learners, PACKETS),
        ("ssh", over_ssh, options.ssh, LAUNCHED),
        ("ray", over_ray, options.ray, LAUNCHED),
    ):
        for start in range(0, count, size):
            end = min(start + size, count)
            yield Part(
                f"{name} {start} to {end}",
                lambda folder, chance, trial=trial, number=end - start: trial(number, folder, chance),
            )
    for name in ENVIRONMENTS if options.environments else ():
        yield Part(f"environment {name}", lambda folder, chance, name=name: iter([misbehaving(name, folder)]))


def results_of(part: Part, seed: int) -> list[Any]:
    """Run a part. Its files are kept if anything was wrong."""
    from trials import Result

    folder, results = Path(tempfile.mkdtemp(prefix="pronk-chaos-")), []
    try:
        for result in part.run(folder, random.Random(f"{seed} {part.name}")):
            print(f"{time.strftime('%T')} {result.transport}: {result.kind}: {result.outcome} ({result.seconds:.1f} s)")
            sys.stdout.flush()
            results.append(result)
    except Exception as error:  # of the suite itself, or at the end of a run
        results.append(Result(part.name, "", f"{type(error).__name__}: {str(error)[:300]}"))
        print(f"{time.strftime('%T')} {part.name}: {results[-1].outcome}", flush=True)
    for result in results:
        result.seed, result.part = seed, part.name
    if all(result.is_good for result in results):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"its files are kept in {folder}", flush=True)
    return results


def parts_in(file: Path | None, seed: int) -> set[str]:
    """The parts whose results a file has."""
    lines = file.read_text(encoding="utf-8").splitlines() if file and file.exists() else []
    return {one.get("part", "") for one in map(json.loads, lines) if one["seed"] == seed}


def main() -> None:
    """Run the parts that are missing, print and store the results, and write the table."""
    options = parsed()
    os.environ["PRONK_CHAOS_TIMEOUT"] = str(options.timeout)  # before chaos_run.py is imported
    # A shell ignores Ctrl-C for its background jobs, and so would every run that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    began, good, complete = time.monotonic(), True, True
    done = parts_in(options.results, options.seed)
    for part in parts(options):
        if part.name in done:
            continue
        if time.monotonic() - began >= 60 * options.minutes:
            print(f"{options.minutes:g} minutes are over; give the same command again for the rest")
            complete = False
            break
        results = results_of(part, options.seed)
        good &= all(result.is_good for result in results)
        if options.results:
            with open(options.results, "a", encoding="utf-8") as file:  # at once: a part is there, or it is not
                file.write("".join(result.line() + "\n" for result in results))
    if options.table:
        from chaos_table import write_table

        write_table(options.results, options.table)
    sys.exit(1 if not good else 0 if complete else NOT_ALL)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=0, help="of running trainings, dealt to all transports")
    parser.add_argument("--per-run", type=int, default=12, help="faults that one training has to bear")
    parser.add_argument("--kills", type=int, default=0, help="kill -9 of the learner, with --resume after each")
    parser.add_argument("--interrupts", type=int, default=0, help="Ctrl-C at random instants")
    parser.add_argument("--network", type=int, default=0, help="faults of the network to actors of other machines")
    parser.add_argument("--packets", type=int, default=0, help="lost, reordered, duplicated, corrupted packets (root)")
    parser.add_argument("--learners", type=int, default=0, help="the same between two learners (root)")
    parser.add_argument("--ssh", type=int, default=0, help="kill -9 of learners and actors that pronk launch started")
    parser.add_argument("--ray", type=int, default=0, help="kill -9 of learners and actors on a Ray cluster")
    parser.add_argument("--environments", action="store_true", help="every environment that misbehaves")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--timeout", type=float, default=15, help="actors.timeout_seconds; on a busy machine a start may take longer"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no part after so long")
    parser.add_argument("--results", type=Path, help="JSON lines to which results are added")
    parser.add_argument("--table", type=Path, help="Markdown file to write from --results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
