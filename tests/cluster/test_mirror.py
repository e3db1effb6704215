import os

import pytest

from pronk.cluster import mirror
from pronk.cluster.mirror import Incoming, Outgoing


@pytest.fixture
def folders(tmp_path):
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    copy.mkdir()
    return source, copy


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_copy_becomes_and_stays_equal(folders, monkeypatch):
    monkeypatch.setattr(mirror, "CHUNK", 7)
    source, copy = folders
    outgoing, incoming = Outgoing(source), Incoming(copy)

    def carry():
        events = list(outgoing.changes())
        for event in events:
            incoming.take(event)
        assert content(copy) == content(source)
        return len(events)

    (source / "logs").mkdir()
    (source / "metrics.jsonl").write_bytes(b"one line\n")
    (source / "logs" / "empty.log").touch()
    (source / "model.pt").write_bytes(os.urandom(50))
    carry()
    assert carry() == 0, "nothing is new"
    with open(source / "metrics.jsonl", "ab") as file:
        file.write(b"another\n")
    assert carry() == 2, "only the new end travels, in chunks"
    (source / "new.tmp").write_bytes(os.urandom(40))
    os.replace(source / "new.tmp", source / "model.pt")
    carry()
    (source / "metrics.jsonl").write_bytes(b"cut\n")  # a resumed run
    carry()
    (source / "model.pt").unlink()
    carry()
    assert "model.pt" not in content(copy)


def test_what_is_still_being_written_does_not_travel(folders):
    source, _ = folders
    (source / "checkpoint.tmp").write_bytes(b"half")
    (source / "link").symlink_to("/etc/passwd")
    assert list(Outgoing(source).changes()) == []


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ""])
def test_nothing_is_written_outside(folders, name):
    event = {"file": name, "at": 0, "data": "", "appended": False, "last": True}
    with pytest.raises((ValueError, KeyError)):
        Incoming(folders[1]).take(event)


def test_other_files_of_the_copy_are_left_alone(folders):
    source, copy = folders
    (copy / "mine").write_text("kept")
    (source / "a").write_text("b")
    outgoing = Outgoing(source)
    for event in outgoing.changes():
        Incoming(copy).take(event)
    assert content(copy) == {"mine": b"kept", "a": b"b"}
