"""Does an earlier commit learn the same from the same data? `python benchmarks/same_updates.py --before CLONE`

Only for a preset whose settings are the same in both versions, such as `cartpole`. Two trainings with one seed differ,
because the order of unrolls depends on the machine; and after a hundred thousand updates no two versions agree. So the
learners themselves are compared: this version plays a preset and keeps its batches; then the learners of both versions
start from the same weights and learn from these batches, in the same order. If every loss and the final weights agree,
then both learn alike, and how soon a preset is learnt depends on their speed alone, which `pronk bench` measures.

CLONE is a clone of the repository at the earlier commit: `git clone . CLONE && git -C CLONE checkout COMMIT`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
RATE = 0.01  # of the preset's learning rate. With all of it, rounding errors of Pong grow tenfold every other update.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=["cartpole"])
    parser.add_argument("--before", type=Path, help="a clone at the earlier commit")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)  # a folder: run as one of the two versions
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.presets[0], options.updates)
        return
    if not options.before:
        parser.error("--before is required: a clone at the earlier commit")
    print("| preset | updates | loss, first and last | largest difference of a loss | of a weight |")
    print("|---|---|---|---|---|")
    for preset in options.presets:
        print(compare(preset, options.before, options.updates), flush=True)


def compare(preset: str, before: Path, updates: int) -> str:
    """Let both versions learn, and return a row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = []
        for tree in (HERE.parent, before.resolve()):  # the newer one first: it plays
            command = [sys.executable, __file__, preset, "--worker", str(folder), "--updates", str(updates)]
            subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(tree)}, cwd=folder)
            results.append(torch.load(folder / "result.pt"))
    (losses, weights), (losses_before, weights_before) = results
    apart = (losses - losses_before).abs() / losses_before.abs().clamp(min=1e-8)
    moved = (weights - weights_before).abs().max() / weights_before.abs().max()
    return f"| {preset} | {updates} | {losses[0]:.6g}, {losses[-1]:.6g} | {apart.max():.1e} | {moved:.1e} |"


def work(folder: Path, preset: str, updates: int) -> None:
    """Learn from the batches in a folder; play them first if there are none. Runs in either version of Pronk."""
    from pronk import config as configuration
    from pronk.envs import make_env
    from pronk.learner import Learner
    from pronk.types import Unroll

    torch.set_num_threads(1)
    loaded = configuration.load_config(preset, ["run.seed=1"])
    config: Any = configuration.resolve(loaded) if hasattr(configuration, "resolve") else loaded.resolved()
    env = make_env(config, config.actors.envs)
    learner = Learner(config, env.spec, torch.device("cpu"))
    weights = list(learner.network.state_dict().values())
    if not (folder / "batches.pt").exists():
        torch.save(([tensor.clone() for tensor in weights], play(config, env, learner, updates)), folder / "batches.pt")
    env.close()
    start, batches = torch.load(folder / "batches.pt")
    for mine, given in zip(weights, start, strict=True):  # they have other names in other versions, in the same order
        mine.copy_(given)
    rate = RATE * config.optimiser.learning_rate
    fields = set(Unroll._fields)  # the newer version may have more
    unrolls = [Unroll(**{name: batch[name] for name in fields}) for batch in batches]
    losses = [learner.step(unroll, rate, lambda: None)["loss"] for unroll in unrolls]
    torch.save((torch.tensor(losses), torch.cat([tensor.flatten() for tensor in weights])), folder / "result.pt")


def play(config: Any, env: Any, learner: Any, count: int) -> list[dict[str, Any]]:
    """Play batches with the first weights, and return them."""
    from pronk.actor import Actor, specs_for
    from pronk.batcher import Batcher
    from pronk.layout import UnrollLayout
    from pronk.policies.local import LocalInference
    from pronk.transport.local import LocalTransport
    from pronk.types import map_tree

    specs = specs_for(config, env.spec, learner.network.state_spec)
    port = LocalTransport(UnrollLayout(specs))
    port.publish(learner.parameters())
    policy = LocalInference.policy(config, env.spec, 1, {})
    port.while_waiting = Actor(env, policy, port, list(range(config.actors.envs))).advance
    batcher = Batcher(port, specs, config.learner.batch_size, torch.device("cpu"))
    batches = []
    for _ in range(count):
        tensors = batcher.next().tensors._asdict()
        batches.append({name: map_tree(torch.clone, tree) for name, tree in tensors.items()})
    return batches


if __name__ == "__main__":
    main()
