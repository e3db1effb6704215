"""Who may ask the dashboard, and who may change something: tags and notes are all that can be changed.

A page of another site can make a browser send requests here. To read, the `Host` must be a loopback name, so that no
name that points here is enough (DNS rebinding), and the request may not come from another site. To write, it must
come from a page that this server gave out (`Origin`), and carry JSON, which no form of another site can send without
asking first. On Linux it must come from a process of the same user, too.
"""

from __future__ import annotations

import os
import re
from email.message import Message
from pathlib import Path

CONNECTIONS = Path("/proc/net/tcp")  # of IPv4: the server listens on 127.0.0.1 only
LOOPBACK_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)


def may_read(headers: Message) -> bool:
    """Whether the request is for this machine's browser. Any port is allowed: an SSH tunnel may use another one.

    A page of another site may link here, but not read.
    """
    site, kind = headers.get("Sec-Fetch-Site", "none"), headers.get("Sec-Fetch-Mode", "navigate")
    own = LOOPBACK_HOST.fullmatch(headers.get("Host", "")) is not None
    return own and (site in ("same-origin", "none") or kind == "navigate")


def why_not_write(headers: Message, port: int) -> str | None:
    """Return why a request may not change anything, or None. `port` is that of the other side of the connection."""
    if headers.get("Origin", "").lower() != f"http://{headers.get('Host', '')}".lower():
        return "only the dashboard's own page may change something"
    if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        return "only the dashboard's own page may change something"
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return "the content must be application/json"
    user = user_of(port)
    return None if user in (None, 0, os.getuid()) else "only the user who started the dashboard may change something"


def user_of(port: int, connections: Path = CONNECTIONS) -> int | None:
    """Return the id of the user whose socket at 127.0.0.1 has this port; None where the system does not say."""
    try:
        rows = [line.split() for line in connections.read_text(encoding="ascii").splitlines()[1:]]
    except (OSError, ValueError):
        return None
    local = f"0100007F:{port:04X}"
    return next((int(row[7]) for row in rows if len(row) > 7 and row[1] == local), None)
