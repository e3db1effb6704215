"""What `auto` becomes, and what one learner of several gets."""

import pytest

from pronk.config import Config, Rank, ResolvedConfig, available_cores, load_config, preset_names, record, resolve
from pronk.config.resolved import check_resolved, session_names
from pronk.types import UserError


def resolved(source, *overrides, rank=None):
    return resolve(load_config(source, list(overrides)), rank or Rank())


def on_one_machine(rank, count):
    return Rank(rank, count, rank, count)


# ---- one learner


@pytest.mark.parametrize(
    ("batch", "envs"), [(16, 16), (32, 16), (64, 16), (8, 16), (4, 16), (1, 16), (10, 10), (24, 24), (7, 7)]
)
def test_auto_environments_fit_the_batch(batch, envs):
    assert resolved("catch", f"learner.batch_size={batch}").actors.envs == envs


def test_auto_actors_take_the_cores():
    config = resolved("catch")
    assert (config.actors.count, config.learner.threads) == (available_cores(), 1)
    assert resolved("catch", "actors.count=1").learner.threads == max(1, available_cores() - 1)


def test_a_deep_network_is_learnt_on_all_cores():
    deep = ["network.torso=deep", "env.id=atari", "env.game=pong"]
    assert resolved("catch", *deep).learner.threads == available_cores()
    assert resolved("catch", *deep, "transport=local").learner.threads == 1
    assert resolved("catch", *deep, "learner.threads=1").learner.threads == 1


def test_one_process_has_one_actor_and_one_thread():
    config = resolved("catch", "transport=local")
    assert (config.actors.count, config.learner.threads) == (1, 1)


def test_a_value_network_is_never_separate_with_a_core():
    assert resolved("catch").network.separate_value == "auto"  # the observation decides
    assert resolved("catch", "network.torso=deep").network.separate_value is False
    assert resolved("catch", "network.core=lstm").network.separate_value is False


@pytest.mark.parametrize(
    ("overrides", "envs"),
    [
        ([], 20),
        (["evaluation.episodes=100"], 64),
        (["evaluation.envs=8"], 8),
        (["evaluation.envs=80"], 20),
        (["env.vectorization=async", "actors.envs=4"], 4),
    ],
)
def test_evaluation_has_an_environment_per_episode_within_reason(overrides, envs):
    assert resolved("catch", *overrides).evaluation.envs == envs


def test_what_the_user_set_stays():
    chosen = ["actors.count=3", "actors.envs=4", "learner.threads=2", "network.separate_value=false"]
    config = resolved("catch", *chosen)
    assert (config.actors.count, config.actors.envs, config.learner.threads) == (3, 4, 2)
    assert config.network.separate_value is False


def test_only_what_shows_later_is_left_open():
    tree = resolved("catch").model_dump()
    sections = {name: section for name, section in tree.items() if isinstance(section, dict)}
    left = [f"{name}.{key}" for name, section in sections.items() for key, value in section.items() if value == "auto"]
    network = ["network.torso", "network.standardise", "network.separate_value"]  # the observation decides
    assert left == ["env.vectorization", *network, "learner.device", "gateway.max_actors"]


# ---- files


@pytest.mark.parametrize("name", preset_names())
def test_a_resolved_configuration_survives_being_written_and_read(name):
    config = resolved(name)
    assert ResolvedConfig.from_yaml(config.to_yaml()) == config


def test_a_resolved_configuration_from_elsewhere_that_does_not_fit_is_explained_in_one_line():
    text = resolved("catch").to_yaml().replace("unroll_length", "unrol_length")
    with pytest.raises(UserError, match=r"^from 10\.0\.0\.1: unknown key actors\.unrol_length \(did you mean"):
        ResolvedConfig.from_yaml(text, "from 10.0.0.1")


@pytest.mark.parametrize("name", preset_names())
def test_the_record_of_a_run_loads_again_and_resolves_to_the_same(name, tmp_path):
    config = load_config(name)
    written = record(config, resolve(config))
    file = tmp_path / "config.yaml"
    file.write_text(written.to_yaml())
    assert load_config(file) == written
    assert resolve(written) == resolve(config)
    assert record(written, resolve(written)) == written
    assert isinstance(written.actors.count, int)


def test_the_record_is_of_all_learners_and_not_of_where_they_ran():
    config = load_config("catch", ["learners=2", "learner.batch_size=32", "learners.rank=0", "learners.address=here:1"])
    written = record(config, resolve(config, Rank(0, 2)))
    assert (written.learners.count, written.learners.rank, written.learners.address) == (2, None, None)
    assert (written.actors.count, written.learner.threads, written.learner.batch_size) == ("auto", "auto", 32)
    assert isinstance(written.actors.envs, int)


# ---- several learners


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["learners=3"], r"learner\.batch_size \(64\) must be a multiple of learners\.count \(3\).*batch_size=66"),
        (["learners=128"], r"learner\.batch_size \(64\).*learners\.count \(128\).*batch_size=128"),
        (["learners=2", "actors.envs=48"], r"learners\.count \(32\).*actors\.envs \(48\).*batch_size=96"),
        (["learners=2", "learners.rank=2"], r"rank \(2\) must be below count \(2\)"),
    ],
)
def test_what_does_not_divide_is_a_users_mistake(overrides, named):
    with pytest.raises(UserError, match=named):
        load_config("cartpole", overrides)


def test_every_learner_has_its_part_of_the_batch_and_of_the_actors():
    config = load_config("catch", ["learners=4", "learner.batch_size=32", "actors.count=6", "actors.envs=8"])
    parts = [resolve(config, on_one_machine(rank, 4)) for rank in range(4)]
    assert [part.learner.batch_size for part in parts] == [8] * 4
    assert [part.actors.count for part in parts] == [2, 2, 1, 1]
    assert [(part.rank, part.learners) for part in parts] == [(rank, 4) for rank in range(4)]


def test_every_learner_has_at_least_one_actor():
    config = load_config("cartpole", ["learners=2"])
    assert config.actors.count == 1
    assert [resolve(config, on_one_machine(rank, 2)).actors.count for rank in range(2)] == [1, 1]


def test_only_learner_0_evaluates():
    config = load_config("catch", ["learners=2", "evaluation=true"])
    assert [resolve(config, on_one_machine(rank, 2)).evaluation.enabled for rank in range(2)] == [True, False]


def test_what_belongs_to_a_machine_is_not_recorded(tmp_path):
    host = ["gateway.address=0.0.0.0:5050", "gateway.token_file=/secret/token", "gateway.certificate=/secret/cert.pem"]
    host += ["gateway.private_key=/secret/key.pem", "cluster.address=10.0.0.1:6379", "cluster.actor_cpus=2"]
    config = load_config("catch", [*host, "actors.count=0"])
    text = record(config, resolve(config)).to_shared_yaml()
    assert "gateway" not in text
    assert "cluster" not in text
    assert "secret" not in text
    file = tmp_path / "config.yaml"
    file.write_text(text)
    assert load_config(file).actors.count == "auto", "the run can be continued without other machines"


def test_actors_of_other_machines_join_every_learner_at_a_port_of_its_own():
    config = load_config("catch", ["learners=2", "actors.count=0", "gateway.address=0.0.0.0:5050"])
    parts = [resolve(config, on_one_machine(rank, 2)) for rank in range(2)]
    assert [part.actors.count for part in parts] == [0, 0]
    assert [part.gateway.address for part in parts] == ["0.0.0.0:5050", "0.0.0.0:5051"]
    assert resolve(config, Rank(1, 2)).gateway.address == "0.0.0.0:5050", "another machine has all its ports"
    free = config.replace({"gateway.address": "127.0.0.1:0"})
    assert resolve(free, on_one_machine(1, 2)).gateway.address == "127.0.0.1:0"


def test_auto_shares_this_machine():
    config = load_config("catch", ["learners=4", "learner.batch_size=32"])
    parts = [resolve(config, Rank(rank, 4, rank % 2, 2)) for rank in range(4)]
    assert sum(part.actors.count for part in parts[:2]) == max(2, available_cores())
    assert all(part.learner.threads == 1 for part in parts)


def test_a_number_of_learners_from_torchrun_that_does_not_divide_the_batch():
    with pytest.raises(UserError, match=r"learner\.batch_size \(16\) must be a multiple of learners\.count \(3\)"):
        resolved("catch", rank=on_one_machine(0, 3))


def test_a_run_of_several_learners_can_be_evaluated_by_one_process():
    config = load_config("catch", ["learners=4", "learner.batch_size=32", "actors.envs=24"])
    assert resolve(config).actors.envs == 24


# ---- what can be configured but not trained


def test_too_few_actors_for_a_batch():
    few = ["actors.count=2", "actors.slots=2", "actors.envs=16"]
    with pytest.raises(UserError, match=r"joins 16 unrolls.*actors\.count=2.*only 4 ready"):
        check_resolved(resolved("catch", *few, "learner.batch_size=256"))
    with pytest.raises(UserError, match=r"learner\.batch_size=128 joins 8.*actors\.count=1"):
        check_resolved(resolved("catch", *few, "learners=2", "learner.batch_size=256", rank=on_one_machine(0, 2)))
    check_resolved(resolved("catch", *few, "learner.batch_size=256", "gateway.address=127.0.0.1:0"))


@pytest.mark.parametrize("key", ["env.id", "network.name", "loss.name"])
def test_code_of_a_script_is_not_sent_over_the_network(key):
    config = Config().replace({key: "__main__:Mine"})
    check_resolved(resolve(config))
    with pytest.raises(UserError, match=r"transport=grpc: __main__:Mine .*not sent over the network"):
        check_resolved(resolve(config.replace({"transport.name": "grpc"})))
    wrapped = config.replace({"env.wrappers": [{"__main__:Wrap": None}], key: Config().at(key)})
    assert session_names(wrapped) == ["__main__:Wrap"]


def test_somebody_has_to_play():
    with pytest.raises(UserError, match=r"actors\.count=0 leaves no actor.*gateway\.address"):
        check_resolved(resolved("catch", "actors.count=0"))
    check_resolved(resolved("catch", "actors.count=0", "gateway.address=127.0.0.1:0"))


def test_one_process_cannot_listen():
    with pytest.raises(UserError, match=r"gateway\.address needs transport=shared_memory"):
        check_resolved(resolved("catch", "transport=local", "gateway.address=127.0.0.1:0"))
