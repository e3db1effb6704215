"""Training over gRPC on this machine against shared memory: `python benchmarks/grpc_vs_shared_memory.py --preset pong`.

The same configuration with transport=shared_memory and transport=grpc, alternating. Prints trained steps/s of both,
after a warm-up, and their ratio.
"""

from __future__ import annotations

from alternating import compare, parse

if __name__ == "__main__":
    compare(parse(__doc__.splitlines()[0]), {name: [f"transport={name}"] for name in ("shared_memory", "grpc")})
