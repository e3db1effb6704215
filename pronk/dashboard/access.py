"""Access control: which requests may read, and which may change something. Only tags and notes can be changed.

A page of another site can make a browser send requests here. To read, `Host` must be a loopback name, which stops DNS
rebinding, and the request may not come from another site. To write, it must come from a page that this server sent
(`Origin`), and carry JSON, which a form of another site cannot send without a CORS preflight request. On Linux it must
also come from a process of the same user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from email.message import Message
from pathlib import Path

CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # the second also lists IPv4 over IPv6 sockets
LOCALS = ("0100007F", "0000000000000000FFFF00000100007F")  # 127.0.0.1, in each of them
UNKNOWN = -1  # user of a connection that the system's lists do not have
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


def user_of(port: int, connections: Sequence[Path] = CONNECTIONS) -> int | None:
    """Return the id of the user whose open socket at 127.0.0.1 has this port; None where the system does not say.

    A socket that was closed has no owner any more (inode 0, user 0), and one at another address is not looked for.
    """
    try:
        tables = [path.read_text(encoding="ascii") for path in connections if path.exists()]
    except (OSError, ValueError):
        return None
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    wanted = {f"{address}:{port:04X}" for address in LOCALS}
    owners = (int(row[7]) for row in rows if len(row) > 9 and row[1] in wanted and row[9] != "0")
    return next(owners, UNKNOWN) if tables else None
