"""Keys that have been renamed are still understood, with a line that says the new name."""

import warnings

import pytest

from pronk.config import Config, load_config, plain_yaml, validate
from pronk.config.renamed import RENAMED, RenamedKey
from pronk.config.trees import MISSING, pop

OLD_RUN = {  # as 0.1 wrote config.yaml: every key, set or not
    "env": {"id": "catch"},
    "transport": {"name": "grpc", "address": None, "token_file": None, "insecure": False, "compression": "none"},
    "launch": {"name": "local", "address": None, "learner_cpus": 1.0},
}


def test_every_new_name_exists_and_no_old_one_does():
    known = Config().model_dump()
    assert [new for new in RENAMED.values() if pop(known, new)[1] is MISSING] == []
    assert [old for old in RENAMED if pop(known, old)[1] is not MISSING] == []


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("launch=ray", "cluster=ray", "launch is now called cluster"),
        ("launch.name=ray", "cluster.name=ray", "launch is now called cluster"),
        ("launch.actor_cpus=2", "cluster.actor_cpus=2", "launch is now called cluster"),
        ("transport.address=1.2.3.4:5", "gateway.address=1.2.3.4:5", "transport.address is now called gateway.address"),
        ("transport={token_file: t}", "gateway.token_file=t", "transport.token_file is now called gateway.token_file"),
    ],
)
def test_an_override_by_its_old_name(old, new, note):
    with pytest.warns(RenamedKey, match=note) as caught:
        config = load_config("catch", [old])
    assert len(caught) == 1
    assert config == load_config("catch", [new]) != load_config("catch")


def test_the_last_override_wins_under_either_name():
    addresses = ["transport.address=a:1", "gateway.address=b:2", "transport.address=c:3"]
    with pytest.warns(RenamedKey):
        assert load_config("catch", addresses).gateway.address == "c:3"
    with pytest.warns(RenamedKey):
        assert load_config("catch", addresses[:2]).gateway.address == "b:2"


def test_a_file_by_old_names_and_the_file_that_builds_on_it(tmp_path):
    (tmp_path / "old.yaml").write_text("transport: {name: grpc, address: 'a:1'}\nlaunch: {name: ray, actor_cpus: 2}\n")
    (tmp_path / "new.yaml").write_text(f"base: {tmp_path}/old.yaml\ngateway: {{address: 'b:2'}}\n")
    with pytest.warns(RenamedKey) as caught:
        config = load_config(tmp_path / "new.yaml")
    assert len(caught) == 2
    assert (config.gateway.address, config.transport.name) == ("b:2", "grpc")
    assert (config.cluster.name, config.cluster.actor_cpus) == ("ray", 2)


def test_a_mistake_in_an_old_section_names_the_new_one():
    with pytest.warns(RenamedKey), pytest.raises(Exception, match=r"cluster\.adress \(did you mean 'cluster\.address'"):
        load_config("catch", ["launch.adress=here"])


def test_what_an_older_version_wrote_is_read_without_a_word(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert validate(OLD_RUN) == Config().replace({"env.id": "catch", "transport.name": "grpc"})
        (tmp_path / "config.yaml").write_text(plain_yaml.dump(OLD_RUN))
        assert load_config(tmp_path / "config.yaml") == validate(OLD_RUN)
