"""hosts.csv: the machines of `pronk launch`, and what runs on each."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from pronk.config.errors import nearest
from pronk.types import UserError

COLUMNS = ("role", "host", "port", "user", "key file", "devices", "count")
ROLES = ("learner", "actor")


@dataclass(frozen=True)
class Host:
    """One row."""

    role: str
    host: str
    port: int | None = None
    user: str | None = None
    key_file: str | None = None
    devices: str | None = None
    """GPUs, as in CUDA_VISIBLE_DEVICES."""
    count: int = 1
    """Processes of this role on the host."""

    def devices_of(self, index: int) -> str | None:
        """Return the devices of one process: one each if there are as many as processes, else all."""
        if not self.devices:
            return self.devices
        each = self.devices.replace(",", " ").split()
        return each[index] if self.count == len(each) else ",".join(each)


def read_hosts(path: Path) -> list[Host]:
    """Return all rows. The first line names the columns; without it they are COLUMNS, in this order.

    Raises:
        UserError: with the line number.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the list of hosts {path}: {getattr(error, 'strerror', None) or error}") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip(" ,") and line[0] != "#"]
    if not lines:
        raise UserError(f"{path} is empty; its first line should be {','.join(COLUMNS)}")
    header = [name.strip().lower().replace("_", " ") for name in next(csv.reader([lines[0][1]]))]
    if header[0] in ROLES:
        header = list(COLUMNS)
    else:
        check_header(header, path)
        lines = lines[1:]
    hosts = []
    for number, line in lines:
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if len(cells) > len(header):
            raise UserError(f"{path}, line {number}: {len(cells)} values for {len(header)} columns")
        hosts.append(as_host(dict(zip(header, cells, strict=False)), f"{path}, line {number}"))
    for role in ROLES:
        if not any(host.role == role for host in hosts):
            raise UserError(f"{path}: no row has the role {role}; at least one is needed")
    return hosts


def check_header(header: list[str], path: Path) -> None:
    """Raise UserError for an unknown, missing or duplicate column."""
    for name in header:
        if "password" in name or "passphrase" in name:
            raise UserError(f"{path}: passwords do not belong in a file; use `key file`, an SSH agent or ~/.ssh/config")
        if name not in COLUMNS:
            raise UserError(f"{path}: no column {name!r}{nearest(name, COLUMNS)}; there are {', '.join(COLUMNS)}")
    for name in ("role", "host"):
        if name not in header:
            raise UserError(f"{path}: the column {name!r} is missing; the first line should be {','.join(COLUMNS)}")
    if len(set(header)) < len(header):
        raise UserError(f"{path}: a column appears twice")


def as_host(row: dict[str, str], where: str) -> Host:
    """Return one row as a host. Raises UserError."""
    role, host = row["role"].lower(), row["host"]
    if role not in ROLES:
        raise UserError(f"{where}: role {row['role']!r} is neither learner nor actor{nearest(role, ROLES)}")
    if not host or host.startswith("-") or any(character.isspace() for character in host):
        raise UserError(f"{where}: {host!r} is not a host")
    user = row.get("user") or None
    if user and (user.startswith("-") or "@" in user):
        raise UserError(f"{where}: {user!r} is not a user")
    port, count = whole_number(row, "port", where), whole_number(row, "count", where)
    return Host(
        role,
        host,
        port or None,
        user,
        row.get("key file") or None,
        row.get("devices") or None,
        1 if count is None else count,
    )


def whole_number(row: dict[str, str], column: str, where: str) -> int | None:
    """Return the value of a cell, None if it is empty."""
    text = row.get(column, "")
    if not text:
        return None
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise UserError(f"{where}: {column} {text!r} is not a whole number from 1 to 65535")
    return int(text)
