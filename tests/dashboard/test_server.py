"""The server writes nothing but tags, answers nobody but this machine's browser, and gives out nothing else."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_runs import add_the_rest, make_run
from processes import command_line

from pronk.dashboard import access, prometheus, runs
from pronk.dashboard.server import OWN_FILES, Server, open_folder
from pronk.runs.directory import RunDirectory
from pronk.types import UserError

HOST = "localhost:1234"  # the port of a tunnel, perhaps


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("folder") / "runs"
    run = make_run(folder / "sweep" / "a b&c", 20)
    add_the_rest(run)
    (run / "videos").mkdir()
    (run / "videos" / "final.mp4").write_bytes(bytes(range(256)) * 10)
    (run / "videos" / "elsewhere.mp4").symlink_to("/etc/passwd")
    (run / "videos" / "notes.txt").write_text("private")
    (run / "videos" / "final.jpg").write_bytes(b"poster")
    (run / "logs" / "actor-000.log").write_text("it starts\n")
    (run / "logs" / "elsewhere.log").symlink_to("/etc/passwd")
    with open_folder(folder, 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


def request(
    server: Server, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        sent = {"Host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        return response.status, response.read(), dict(response.getheaders())
    finally:
        connection.close()


def test_it_listens_on_loopback_only(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize("path", ["/", "/run?run=sweep%2Fa+b%26c", "/compare", *(f"/static/{n}" for n in OWN_FILES)])
def test_pages_and_their_parts_are_there_and_name_no_other_host(server: Server, path: str) -> None:
    status, content, headers = request(server, path)
    assert status == 200
    assert content
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert b"https://" not in content
    assert b"http://" not in content.replace(b"http://www.w3.org/2000/svg", b"")


def test_all_pages_begin_alike() -> None:
    """But for their title, their own program and parts, and which of the pages they are."""
    beginnings = set()
    for page in ("runs.html", "run.html", "compare.html"):
        beginning = OWN_FILES[page].read_text().partition("<main")[0]
        beginnings.add(
            re.sub(r"<title>.*</title>|.*(type=.module|modulepreload).*\n| aria-current=.page.", "", beginning)
        )
    assert len(beginnings) == 1


def test_answers_are_strict_json(server: Server) -> None:
    for question in ("runs", "run?run=sweep/a%20b%26c", "curve?run=sweep/a%20b%26c&kind=evaluation", "difference"):
        status, content, headers = request(server, f"/api/{question}")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        json.loads(content, parse_constant=lambda word: pytest.fail(word))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "localhost.evil.example", "", "127.0.0.1.nip.io"]
)
def test_a_name_that_points_here_is_not_enough(server: Server, host: str) -> None:
    status, content, _ = request(server, "/api/runs", Host=host)
    assert status == 403
    assert b"sweep" not in content


def test_pages_of_other_sites_may_link_but_not_load(server: Server) -> None:
    assert request(server, "/api/runs", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0] == 403
    assert request(server, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    _, _, headers = request(server, "/api/runs", Origin="http://evil.example")
    assert "Access-Control-Allow-Origin" not in headers
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


RUN = "run=sweep/a%20b%26c"
OWN_PAGE = {"Origin": f"http://{HOST}", "Content_Type": "application/json"}


def test_tags_are_changed_by_the_own_page_only(server: Server) -> None:
    content, file = json.dumps({"tags": ["a", "b"], "note": "c"}).encode(), server.folder / "sweep/a b&c/tags.json"
    for wrong in (
        {"Origin": "http://evil.example"},
        {"Origin": f"https://{HOST}"},
        {"Origin": "null"},
        {"Content_Type": "text/plain"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ):
        status, answer, _ = request(server, f"/api/tags?{RUN}", "POST", content, **{**OWN_PAGE, **wrong})
        assert (status, answer.count(b"\n")) == (403, 1), wrong
    assert request(server, f"/api/tags?{RUN}", "POST", content, Content_Type="application/json")[0] == 403, "no origin"
    assert not file.exists()
    status, answer, _ = request(server, f"/api/tags?{RUN}", "POST", content, **OWN_PAGE)
    assert (status, json.loads(answer)) == (200, {"tags": ["a", "b"], "note": "c"})
    assert json.loads(file.read_text()) == json.loads(content)
    for wrong in (b"[", b"[]", b'{"tags": 3}', b'{"tags": [""]}', b'{"tags": ["\\n"]}', b'{"note": 3}', b'{"more": 1}'):
        assert request(server, f"/api/tags?{RUN}", "POST", wrong, **OWN_PAGE)[0] == 400
    assert request(server, f"/api/tags?{RUN}", "POST", b" " * 70_000, **OWN_PAGE)[0] == 413
    assert request(server, "/api/tags?run=nobody", "POST", content, **OWN_PAGE)[0] == 404
    assert json.loads(file.read_text()) == json.loads(content)


def test_another_user_of_the_machine_may_look_but_not_change(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "user_of", lambda port: os.getuid() + 1)
    assert request(server, f"/api/tags?{RUN}", "POST", b"{}", **OWN_PAGE)[0] == 403
    assert request(server, "/api/runs")[0] == 200


@pytest.mark.skipif(not access.CONNECTIONS[0].exists(), reason="the system does not say whose a connection is")
def test_the_system_says_whose_a_connection_is(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        port = connection.getsockname()[1]
        assert access.user_of(port) == os.getuid()
    assert access.user_of(port) == access.UNKNOWN, "of a closed socket nobody knows whose it was"
    with socket.create_connection(("127.0.0.1", server.server_port), 20, ("127.0.0.2", 0)) as elsewhere:
        assert access.user_of(elsewhere.getsockname()[1]) == access.UNKNOWN


def test_prometheus_gets_the_numbers_of_running_runs(tmp_path: Path) -> None:
    run = make_run(tmp_path / 'one "run"', 5, None)
    add_the_rest(run)
    make_run(tmp_path / "over", 5)
    with RunDirectory(run).locked():
        text = prometheus.metrics_text(runs.find(tmp_path))
    lines = text.splitlines()
    assert 'pronk_runs{state="running"} 1' in lines
    assert 'pronk_runs{state="finished"} 1' in lines
    steps = 'pronk_env_steps{run="one \\"run\\"",environment="CartPole-v1"} 16384'
    assert lines[lines.index(steps) - 1] == "# TYPE pronk_env_steps counter"
    assert any(line.startswith('pronk_evaluation_mean{run="one ') for line in lines)
    assert not any("over" in line for line in lines)
    assert all(re.fullmatch(r"# TYPE \w+ (gauge|counter)|\w+\{.*\} -?[\d.e+-]+", line) for line in lines)


def test_a_log_is_followed(server: Server) -> None:
    log = server.folder / "sweep/a b&c/logs/actor-000.log"
    first = json.loads(request(server, f"/api/log?{RUN}&log=actor-000.log")[1])
    assert first["text"] == "it starts\n"
    with open(log, "ab") as file:
        file.write(b"\x1b[2J half a letter: \xc3")
    place = f"/api/log?{RUN}&log=actor-000.log&file={first['file']}&after="
    second = json.loads(request(server, place + str(first["after"]))[1])
    assert (second["text"], second["goes_on"]) == ("?[2J half a letter: ", True)
    with open(log, "ab") as file:
        file.write(b"\xa9")
    assert json.loads(request(server, place + str(second["after"]))[1])["text"] == "\xe9"
    log.write_bytes(b"x" * 100_000)
    long = json.loads(request(server, place + "0")[1])
    assert (len(long["text"]), long["skipped"]) == (64 * 1024, 100_000 - 64 * 1024)
    log.write_text("new")
    assert json.loads(request(server, place + "100000")[1])["goes_on"] is False


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
def test_it_is_only_for_reading(server: Server, method: str) -> None:
    status, _, headers = request(server, "/api/runs", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/api/run?run=..",
        "/api/run?run=../..",
        "/api/run?run=/etc",
        "/api/run",
        "/api/curve?run=sweep/a%20b%26c&kind=../config.yaml",
        "/clip?run=sweep/a%20b%26c&clip=../config.yaml",
        "/clip?run=sweep/a%20b%26c&clip=elsewhere.mp4",
        "/clip?run=sweep/a%20b%26c&clip=notes.txt",
        "/clip?run=sweep/a%20b%26c&clip=%00",
        "/poster?run=sweep/a%20b%26c&clip=elsewhere.mp4",
        "/api/log?run=sweep/a%20b%26c&log=elsewhere.log",
        "/api/log?run=sweep/a%20b%26c&log=../config.yaml",
        "/api/tags?run=sweep/a%20b%26c",
        "/favicon.ico",
    ],
)
def test_nothing_else_is_given_out(server: Server, path: str) -> None:
    status, content, headers = request(server, path)
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")
    assert content.count(b"\n") == 1


@pytest.mark.parametrize("path", ["http://[", "/api/runs?" + "a&" * 200_000])
def test_what_is_no_address_is_refused_without_a_traceback(
    server: Server, path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):  # it need not read all of a long line
            assert re.match(rb"HTTP/1.1 4\d\d ", connection.recv(100))
    assert request(server, "/")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_range_with_thousands_of_digits_harms_nobody(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    address = "/clip?run=sweep/a%20b%26c&clip=final.mp4"
    for asked in (f"bytes=0-{'9' * 5000}", f"bytes={'9' * 5000}-"):
        assert request(server, address, Range=asked)[0] in (200, 416)
    assert "Traceback" not in capfd.readouterr().err


def test_a_clip_comes_whole_or_in_parts(server: Server) -> None:
    address, whole = "/clip?run=sweep/a%20b%26c&clip=final.mp4", bytes(range(256)) * 10
    status, content, headers = request(server, address)
    assert (status, content, headers["Content-Type"]) == (200, whole, "video/mp4")
    status, content, headers = request(server, address, Range="bytes=100-199")
    assert (status, content, headers["Content-Range"]) == (206, whole[100:200], "bytes 100-199/2560")
    assert request(server, address, Range="bytes=2500-")[1] == whole[2500:]
    assert request(server, address, Range="bytes=9999-")[0] == 416
    assert request(server, address, "HEAD")[1] == b""


def test_many_ask_at_once(server: Server) -> None:
    codes: list[int] = []
    asking = [threading.Thread(target=lambda: codes.append(request(server, "/api/runs")[0])) for _ in range(20)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(20)
    assert codes == [200] * 20


def test_a_line_that_is_not_http_is_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert connection.recv(4096).startswith(b"Bad")
    assert request(server, "/")[0] == 200


def test_a_taken_port_is_a_mistake_if_it_was_asked_for(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"cannot listen on port {server.server_port}"):
        open_folder(tmp_path, server.server_port)
    with open_folder(tmp_path) as one, open_folder(tmp_path) as other:
        assert one.server_port != other.server_port


@pytest.mark.parametrize(("folder", "told"), [("nowhere", "there is no folder"), ("a-file", "is a file")])
def test_a_wrong_folder_is_one_line(tmp_path: Path, folder: str, told: str) -> None:
    (tmp_path / "a-file").touch()
    ended = command_line("dashboard", tmp_path / folder)
    assert ended.code == 2
    assert told in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pronk", "dashboard", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
    )
    with process:
        try:
            assert process.stdout is not None
            assert "at http://127.0.0.1:" in process.stdout.readline()
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
            assert "Traceback" not in out + err
            assert process.returncode == (0 if number == signal.SIGINT else -number)
        finally:
            process.kill()
