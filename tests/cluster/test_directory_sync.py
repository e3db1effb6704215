import os

import pytest

from pronk.cluster import directory_sync
from pronk.cluster.directory_sync import DirectoryReceiver, DirectorySender
from pronk.processes.messages import FileChunk


@pytest.fixture
def folders(tmp_path):
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    copy.mkdir()
    return source, copy


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_copy_becomes_and_stays_equal(folders, monkeypatch):
    monkeypatch.setattr(directory_sync, "CHUNK", 7)
    source, copy = folders
    sender, receiver = DirectorySender(source), DirectoryReceiver(copy)

    def carry():
        messages = list(sender.changes())
        for message in messages:
            receiver.apply(message)
        assert content(copy) == content(source)
        return len(messages)

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
    assert not any(isinstance(message, FileChunk) for message in DirectorySender(source).changes())


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", ""])
def test_nothing_is_written_outside(folders, name):
    with pytest.raises(ValueError, match="not in the run directory"):
        DirectoryReceiver(folders[1]).apply(FileChunk(name, 0, "", appended=False, last=True))


def copy_once(source, copy):
    receiver = DirectoryReceiver(copy)
    for message in DirectorySender(source).changes():
        receiver.apply(message)


def test_other_files_of_the_copy_are_left_alone(folders):
    source, copy = folders
    (copy / "mine").write_text("kept")
    (source / "a").write_text("b")
    copy_once(source, copy)
    assert content(copy) == {"mine": b"kept", "a": b"b"}


def test_checkpoints_that_were_removed_while_no_sender_ran_are_removed(folders):
    source, copy = folders
    for folder, names in ((source, ["2.pt", "3.pt"]), (copy, ["1.pt", "2.pt", "1.pt.partial"])):
        (folder / "checkpoints").mkdir()
        for name in names:
            (folder / "checkpoints" / name).write_text(name)
    copy_once(source, copy)
    assert content(copy) == content(source)


def test_a_sender_that_lost_its_checkpoints_does_not_cost_us_ours(folders):
    source, copy = folders
    (copy / "checkpoints").mkdir()
    (copy / "checkpoints" / "1.pt").write_text("the only one left")
    (source / "config.yaml").touch()
    copy_once(source, copy)
    assert (copy / "checkpoints" / "1.pt").exists()
