import pytest

from pronk.cluster.hosts import Host, read_hosts
from pronk.types import UserError

HEADER = "role,host,port,user,key file,devices,count\n"
GOOD = HEADER + "learner,alpha,,,,0,1\nactor,beta,2222,alice,~/.ssh/id,,8\n"


def read(tmp_path, text):
    path = tmp_path / "hosts.csv"
    path.write_text(text)
    return read_hosts(path)


def test_every_row_is_a_host(tmp_path):
    assert read(tmp_path, GOOD) == [
        Host("learner", "alpha", devices="0"),
        Host("actor", "beta", 2222, "alice", "~/.ssh/id", None, 8),
    ]


def test_without_a_first_line_of_names_the_columns_are_the_usual_ones(tmp_path):
    assert read(tmp_path, GOOD.removeprefix(HEADER)) == read(tmp_path, GOOD)


def test_comments_empty_lines_other_orders_and_fewer_columns_are_fine(tmp_path):
    text = "# ours\nhost, Role\n\nalpha,learner\n# theirs\n,\nbeta, actor\n"
    assert read(tmp_path, text) == [Host("learner", "alpha"), Host("actor", "beta")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("role,host,password\nlearner,alpha,x\n", "passwords do not belong in a file"),
        ("role,hst\nlearner,alpha\n", r"no column 'hst'.*host"),
        ("host\nalpha\n", "column 'role' is missing"),
        (HEADER + "lerner,alpha\nactor,beta\n", r"line 2: role 'lerner'.*learner"),
        (HEADER + "learner,alpha\n", "no row has the role actor"),
        (HEADER + "actor,alpha\n", "no row has the role learner"),
        (HEADER + "learner,-oProxyCommand=evil\nactor,beta\n", "is not a host"),
        (HEADER + "learner,alpha,,-l\nactor,beta\n", "is not a user"),
        (HEADER + "learner,alpha,0\nactor,beta\n", "line 2: port '0'"),
        (HEADER + "learner,alpha,x\nactor,beta\n", "line 2: port 'x'"),
        (HEADER + "learner,alpha,,,,,-1\nactor,beta\n", "line 2: count '-1'"),
        (HEADER + "learner,alpha,1,2,3,4,5,6,7,8\nactor,beta\n", "10 values for 7 columns"),
        ("role,host,host\nlearner,a,b\n", "twice"),
    ],
)
def test_mistakes_name_the_line_and_what_is_wrong(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*nowhere"):
        read_hosts(tmp_path / "nowhere.csv")


def test_as_many_processes_as_devices_have_one_each():
    host = Host("learner", "alpha", devices="0, 2", count=2)
    assert [host.devices_of(index) for index in range(2)] == ["0", "2"]


def test_else_all_processes_see_all_devices():
    assert Host("learner", "alpha", devices="0,2", count=1).devices_of(0) == "0,2"
    assert Host("actor", "alpha", count=3).devices_of(2) is None
