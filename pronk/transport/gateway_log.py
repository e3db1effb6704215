"""The gateway's log. A reason to refuse a client is written once per address, however often it happens."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

MOST_KINDS = 1_000  # of refusals counted apart; a hostile client must not fill the disk


class GatewayLog:
    """Writes lines with a time. A refusal is written when it first happens to a peer, and counted afterwards."""

    def __init__(self, put: Callable[[str], None]) -> None:
        self._put = put
        self.connected = 0  # connections that gRPC's own log has mentioned
        self._seen: dict[tuple[str, str], int] = {}
        self._first: dict[tuple[str, str], str] = {}

    def write(self, line: str) -> None:
        self._put(f"{time.strftime('%F %T')} {line}\n")

    def refused(self, peer: str, who: str, reason: str) -> None:
        """Log that a client was refused. Reasons that differ only in numbers count as the same."""
        key = peer, re.sub(r"[\d,]+", "#", reason)
        if key not in self._seen and len(self._seen) >= MOST_KINDS:
            key = "others", "other reasons"
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] == 1:
            self._first[key] = f"refused {who or peer}: {reason}"
            self.write(self._first[key])

    def close(self) -> None:
        """Write how often each refusal happened."""
        for key, count in self._seen.items():
            if count > 1:
                self.write(f"{self._first[key]} ({count:,} times in all)")
