"""`pronk learner`: `pronk train` that listens, and whose host settings stay on this machine."""

import pytest

from pronk.config import load_config

SMALL = ["catch", "actors.count=1", "actors.envs=4", "learner.batch_size=4", "run.stop_return=null"]
HERE = "gateway.address=127.0.0.1:0"


@pytest.mark.timeout(300)
def test_quiet_means_quiet_and_what_belongs_to_the_machine_is_not_recorded(cli, tmp_path):
    code, out, err = cli("learner", *SMALL, HERE, "run.total_steps=320", "--quiet", "--run-dir", "run")
    assert (code, out) == (0, "")
    assert err.startswith("listening on 127.0.0.1:"), "where it listens has to be known"
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run" / "eval.jsonl").exists(), "nobody asked for an evaluation"
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert "gateway" not in text
    assert load_config("run/config.yaml").actors.count == 1
    # Without the address the run continues with its own actor.
    assert cli("train", "run", "--resume", "run.total_steps=640", "--quiet") == (0, "", "")


def test_an_old_name_is_understood_and_the_new_one_said_in_one_line(cli):
    code, out, err = cli("show", "catch", "launch.actor_cpus=2")
    assert code == 0
    assert "cluster:" in out
    assert err == "launch is now called cluster; the old name will not work in the next release\n"
