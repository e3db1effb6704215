"""What normalising observations and values costs: `python benchmarks/normaliser_cost.py --preset cartpole`.

The same configuration with network.normalise and network.popart off and on, alternating. Prints trained steps/s of
both, after a warm-up, and their ratio. Off is off: `tests/networks/test_normalising.py` checks that such a network has
no statistics at all.
"""

from __future__ import annotations

from alternating import compare, parse

if __name__ == "__main__":
    settings = {
        name: [f"network.{key}={value}" for key in ("normalise", "popart")]
        for name, value in {"off": "false", "on": "true"}.items()
    }
    compare(parse(__doc__.splitlines()[0]), settings)
