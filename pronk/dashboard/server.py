"""HTTP on loopback, for browsers of this machine only; `access.py` decides which requests are served.

It answers GET and HEAD, and POST to `/api/tags`, the only thing that can be changed. Files come from closed lists: the
page's own, and the clips and logs of the runs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

from pronk.dashboard import access, answers, prometheus, runs
from pronk.types import UserError

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8642
STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PAGES = {"/": "runs.html", "/run": "run.html", "/compare": "compare.html"}
OWN_FILES = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}
QUESTIONS: dict[str, Callable[[Path, answers.Question], Any]] = {
    "/api/runs": answers.all_runs,
    "/api/run": answers.one_run,
    "/api/curve": answers.curve,
    "/api/difference": answers.difference,
    "/api/log": answers.log,
}
FILES = {"/clip": answers.clip, "/poster": answers.poster}
LARGEST_CHANGE = 64 * 1024  # bytes
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Server(ThreadingHTTPServer):
    """Serves one folder of runs until its `with` block is left."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        try:
            super().__init__((LOOPBACK, DEFAULT_PORT if port is None else port), Handler)
        except (OSError, OverflowError) as error:
            if port is not None:
                reason = getattr(error, "strerror", None) or "ports go from 1 to 65535"
                raise UserError(
                    f"cannot listen on port {port}: {reason}; without a port, a free one is taken"
                ) from None
            super().__init__((LOOPBACK, 0), Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that disconnect in the middle of a reply."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "pronk", ""
    timeout = 60  # seconds of silence after which a kept connection is closed

    def do_GET(self) -> None:
        """Reply, or refuse with one line that says why."""
        if not access.may_read(self.headers):
            return self._refuse(HTTPStatus.FORBIDDEN, "this page is for the browser on this machine only")
        folder = self.server.folder
        try:
            path, question = self._asked()
        except ValueError:  # such as `http://[`
            return self._refuse(HTTPStatus.BAD_REQUEST, "this is not an address")
        try:
            if path in QUESTIONS:
                self._send_json(QUESTIONS[path](folder, question))
            elif path in FILES:
                self._send_file(*FILES[path](folder, question))
            elif path == "/metrics":
                self._send(prometheus.TYPE, prometheus.metrics_text(runs.find(folder)).encode())
            else:
                self._send_own(PAGES.get(path, path.removeprefix("/static/")))
        except answers.Unanswerable as error:
            self._refuse(HTTPStatus.NOT_FOUND, str(error))

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """Change the tags of a run, or refuse with one line that says why."""
        self.close_connection = True  # the content of a refused request is not read, so nothing can follow it
        size = self.headers.get("Content-Length", "")
        try:
            path, question = self._asked()
            if path != "/api/tags":
                return self.send_error(HTTPStatus.NOT_IMPLEMENTED)
            reason = access.why_not_write(self.headers, self.client_address[1])
            if not access.may_read(self.headers) or reason:
                return self._refuse(HTTPStatus.FORBIDDEN, reason or "this page is for the browser on this machine only")
            if not re.fullmatch(r"\d{1,6}", size) or int(size) > LARGEST_CHANGE:
                return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {LARGEST_CHANGE} bytes")
            content = json.loads(self.rfile.read(int(size)))
            self._send_json(answers.change_tags(self.server.folder, question, content))
        except answers.Unanswerable as error:
            self._refuse(HTTPStatus.NOT_FOUND, str(error))
        except UserError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (ValueError, RecursionError):
            self._refuse(HTTPStatus.BAD_REQUEST, "the request is not an address with JSON")

    def _asked(self) -> tuple[str, answers.Question]:
        """Return path and question of the request. Raises ValueError where it is not an address."""
        parts = urlsplit(self.path)
        return parts.path, parse_qs(parts.query, keep_blank_values=True)

    def _send_json(self, answer: Any) -> None:
        self._send("application/json", json.dumps(answer, allow_nan=False, default=str).encode())

    def _send_own(self, name: str) -> None:
        if name not in OWN_FILES:
            raise answers.Unanswerable("there is no such page")
        path = OWN_FILES[name]
        self._send(f"{TYPES[path.suffix]}; charset=utf-8", path.read_bytes())

    def _send(self, kind: str, content: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(content))})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_file(self, path: Path, kind: str) -> None:
        """Send the file or a range of it: browsers request ranges to seek in a video."""
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed by the `with` below
        except OSError:
            raise answers.Unanswerable(f"{path.name} cannot be read") from None
        with file:
            size = os.fstat(file.fileno()).st_size
            asked = re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", self.headers.get("Range", ""))
            first = int(asked[1]) if asked else 0
            last = min(size - 1, int(asked[2])) if asked and asked[2] else size - 1
            if asked and first > last:
                return self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, f"it has {size} bytes")
            headers = {"Content-Type": kind, "Content-Length": str(last - first + 1), "Accept-Ranges": "bytes"}
            if asked:
                headers["Content-Range"] = f"bytes {first}-{last}/{size}"
            self._head(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK, headers)
            if self.command != "HEAD":
                file.seek(first)
                copy(file, self.wfile, last - first + 1)

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._send("text/plain; charset=utf-8", f"{reason}\n".encode(), status)

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the standard library: a method that is not GET, a line that is not HTTP."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, message = HTTPStatus.METHOD_NOT_ALLOWED, "this address is only for reading"
        self.close_connection = True
        content = f"{message or HTTPStatus(code).phrase}\n".encode()
        fixed = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(content))}
        extra = {"Allow": "GET, HEAD"} if code == HTTPStatus.METHOD_NOT_ALLOWED else {}
        self._head(HTTPStatus(code), {**fixed, **extra, "Connection": "close"})
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: the page polls every second."""


def copy(source: BinaryIO, target: Any, count: int) -> None:
    """Copy `count` bytes, or fewer if the file has become shorter."""
    while count > 0 and (part := source.read(min(count, 64 * 1024))):
        target.write(part)
        count -= len(part)


def open_folder(folder: Path, port: int | None = None) -> Server:
    """Return a server for an existing folder. Raises `UserError` if there is none."""
    if not folder.exists():
        hint = "; start a run with `pronk train cartpole`" if folder == Path("runs") else ""
        raise UserError(f"there is no folder {folder}{hint}")
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; name the folder of the runs")
    return Server(folder, port)
