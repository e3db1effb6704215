from pronk.cli.train import cluster_overrides
from pronk.config import load_config


def test_a_run_on_ray_is_resumed_with_the_settings_of_its_cluster():
    given = ["cluster=ray", "cluster.address=10.0.0.1:6379", "cluster.actor_cpus=0.5", "actors.count=3"]
    assert sorted(cluster_overrides(load_config("catch", given))) == sorted(given)


def test_a_run_on_this_machine_needs_nothing():
    assert cluster_overrides(load_config("catch")) == []
