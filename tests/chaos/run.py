"""The chaos suite: faults against real runs, as many as asked for, and a table of what happened.

python tests/chaos/run.py --faults 40 --kills 10 --interrupts 10 --network 4 --seed 1
python tests/chaos/run.py --table docs/results/chaos.md --results docs/results/chaos.jsonl

Results are added to a file, so several calls with different seeds add up to one table. The exit code is 1 if any
fault was not survived.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1])]
os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:3], os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("OMP_NUM_THREADS", "1")


def trials(options: argparse.Namespace) -> Iterator[object]:
    """Run all that was asked for."""
    from launched import over_ray, over_ssh
    from misbehaving import ENVIRONMENTS
    from network import network
    from trials import interrupts, kills, live, misbehaving, sample

    chance = random.Random(options.seed)

    def folder() -> Path:
        return Path(tempfile.mkdtemp(prefix="pronk-chaos-"))

    for transport, faults in sample(options.faults, chance).items():
        for start in range(0, len(faults), options.per_run):
            yield from live(transport, faults[start : start + options.per_run], folder(), chance)
    if options.kills:
        yield from kills(options.kills, folder(), chance)
    yield from interrupts(options.interrupts, folder(), chance)
    if options.network:
        yield from network(options.network, folder(), chance)
    if options.ssh:
        yield from over_ssh(options.ssh, folder(), chance)
    if options.ray:
        yield from over_ray(options.ray, folder(), chance)
    for name in ENVIRONMENTS if options.environments else ():
        yield misbehaving(name, folder())


def main() -> None:
    """Run the faults, print and store each result, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=0, help="of running trainings, dealt to all transports")
    parser.add_argument("--per-run", type=int, default=12, help="faults that one training has to bear")
    parser.add_argument("--kills", type=int, default=0, help="kill -9 of the learner, with --resume after each")
    parser.add_argument("--interrupts", type=int, default=0, help="Ctrl-C at random instants")
    parser.add_argument("--network", type=int, default=0, help="faults of the network to actors of other machines")
    parser.add_argument("--ssh", type=int, default=0, help="kill -9 of learners and actors that pronk launch started")
    parser.add_argument("--ray", type=int, default=0, help="kill -9 of learners and actors on a Ray cluster")
    parser.add_argument("--environments", action="store_true", help="every environment that misbehaves")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="JSON lines to which results are added")
    parser.add_argument("--table", type=Path, help="Markdown file to write from --results")
    options = parser.parse_args()
    good = True
    for result in trials(options):
        result.seed = options.seed
        good &= result.is_good
        print(f"{time.strftime('%T')} {result.transport}: {result.kind}: {result.outcome} ({result.seconds:.1f} s)")
        sys.stdout.flush()
        if options.results:
            with open(options.results, "a", encoding="utf-8") as file:
                file.write(result.line() + "\n")
    if options.table:
        from chaos_table import write_table

        write_table(options.results, options.table)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
