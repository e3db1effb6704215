"""Central inference against local: `python benchmarks/central_inference.py --preset pong actors.count=8 actors.envs=1`.

The same configuration with actors.inference=local and actors.inference=central, alternating. Prints trained steps/s of
both, after a warm-up, their ratio, the policy lag, and how many observations the server had in a batch.

What it was made for: many thin actors with a large network, where central inference should pay

    python benchmarks/central_inference.py --preset pong actors.count=8 actors.envs=1 network.torso=deep

and few actors with a small one, where it should not

    python benchmarks/central_inference.py --preset cartpole

With `transport=grpc`, too, all actors play over gRPC on this machine, as those of other machines would:

    python benchmarks/central_inference.py --preset pong actors.count=8 actors.envs=1 network.torso=deep transport=grpc

`benchmarks/grpc_vs_shared_memory.py` with `actors.inference=central` compares its two transports.
"""

from __future__ import annotations

import json
from pathlib import Path

from alternating import compare, parse

WAYS = ("local", "central")


def main() -> None:
    compare(parse(__doc__.splitlines()[0]), {name: [f"actors.inference={name}"] for name in WAYS}, more)


def more(run: Path) -> str:
    """The lag at the end, and what the server's log says about its batches."""
    lag = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["policy_lag"]
    log = run / "logs" / "inference.log"
    batches = [line for line in log.read_text().splitlines() if " batches, " in line] if log.exists() else []
    return "; ".join([f", policy lag {lag:.1f}", *(line.split(" ", 2)[2] for line in batches[-1:])])


if __name__ == "__main__":
    main()
