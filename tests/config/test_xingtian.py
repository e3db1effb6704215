"""XingTian's files: what becomes of every key, and that nothing is dropped in silence."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import command_line

from pronk.config import load_config, read_yaml, resolve, validate
from pronk.config.resolved import check_resolved
from pronk.config.xingtian import NO_COUNTERPART, convert, envs_per_actor, flat
from pronk.populations.plan import read_population
from pronk.types import UserError

CARTPOLE = """
alg_para:                           # algorithm
  alg_name: IMPALA
  alg_config: {
    "train_per_checkpoint": 2,
    'prepare_times_per_train': 2,
    'BATCH_SIZE': 800,
    'episode_len': 200,
  }

env_para:
  env_name: GymEnv
  env_info: { 'name': CartPole-v0, 'vision': False}

agent_para:
  agent_name: CartpoleImpala
  agent_num : 1
  agent_config: {
    'max_steps': 200,
    'complete_step': 10000000,
  }


model_para:
  actor:
    model_name: ImpalaMlpMS
    state_dim: [4]
    action_dim: 2

env_num: 10
"""
PONG = """
alg_para:
  alg_name: IMPALAOpt
  alg_config: {train_per_checkpoint: 3, prepare_times_per_train: 4, BATCH_SIZE: 1000}
env_para:
  env_name: VectorAtariEnv
  env_info: {name: PongNoFrameskip-v4, vision: False, dim: 42, vector_env_size: 5}
agent_para:
  agent_name: AtariImpalaOpt
  agent_num : 1
  agent_config: {max_steps: 50, complete_step: 10020000, sync_model_interval: 2}
model_para:
  actor:
    model_name: ImpalaCnnOpt
    state_dim: [42, 42, 4]
    input_dtype: uint8
    state_mean: 128.0
    state_std: 128.0
    action_dim: 6
    model_config: {LR: 0.001, sample_batch_step: 50, grad_norm_clip: 40.0}
env_num: 50
speedup: True
benchmark: {eval: {gap: 20, episodes_per_eval: 2}, log_interval_to_train: 400}
"""


def converted(text: str, **changes: Any) -> tuple[dict[str, Any], list[str]]:
    """`changes`: a__b=value sets a.b; None removes it."""
    tree = yaml.safe_load(text)
    for path, value in changes.items():
        *parents, key = path.split("__")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node.pop(key, None)
        if value is not None:
            node[key] = value
    result = convert(tree)
    return flat(result.config), result.notes


def test_the_cartpole_file_keeps_its_meaning() -> None:
    config, notes = converted(CARTPOLE)
    assert config == {
        "env.id": "CartPole-v0",
        "network.torso": "mlp",
        "network.hidden": [128],
        "network.activation": "relu",
        "loss.discount": 0.99,
        "loss.entropy_cost": 0.01,
        "optimiser.name": "adam",
        "optimiser.learning_rate": 0.0003,
        "optimiser.schedule": "constant",
        "optimiser.max_gradient_norm": None,
        "actors.unroll_length": 200,
        "actors.count": 1,
        "actors.envs": 10,
        "learner.batch_size": 1,
        "run.total_steps": 10_000_000,
        "run.stop_return": 195.0,
    }
    unmatched = [note.partition(":")[0] for note in notes if "no counterpart" in note]
    assert unmatched == [
        "alg_para.alg_config.train_per_checkpoint",
        "agent_para.agent_name",
        "model_para.actor.state_dim",
        "model_para.actor.action_dim",
    ]


def test_an_atari_file_keeps_its_meaning() -> None:
    config, notes = converted(PONG)
    wanted = {
        "env.id": "atari",
        "env.game": "pong",
        "env.atari.size": 42,
        "network.torso": "compact",
        "loss.reduction": "sum",
        "loss.reward_clip": "abs_one",
        "optimiser.learning_rate": 0.001,
        "optimiser.max_gradient_norm": 40.0,
        "actors.unroll_length": 50,
        "actors.count": 12,
        "actors.envs": 20,
        "learner.batch_size": 20,
        "run.total_steps": 10_020_000,
        "evaluation.episodes": 2,
    }
    assert {key: config[key] for key in wanted} == wanted
    named = " ".join(notes)
    for key in ("state_mean, state_std", "sync_model_interval", "speedup", "input_dtype", "gap", "log_interval"):
        assert key in named
    assert "unknown" not in named
    assert converted(PONG, env_para__env_info__dim=84)[0]["network.torso"] == "opt_cnn"


@pytest.mark.parametrize(
    ("game", "ours"),
    [
        ("BeamRiderNoFrameskip-v4", "beam_rider"),
        ("BreakoutNoFrameskip-v4", "breakout"),
        ("QbertNoFrameskip-v4", "qbert"),
        ("SpaceInvadersNoFrameskip-v4", "space_invaders"),
        ("ALE/MsPacman-v5", "ms_pacman"),
    ],
)
def test_games_get_their_names(game: str, ours: str) -> None:
    from pronk.evaluation.atari_scores import human_normalised

    assert converted(PONG, env_para__env_info__name=game)[0]["env.game"] == ours
    assert human_normalised(ours, 0.0) is not None, "a name that Pronk knows"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"model_para__actor__model_config": {"HIDDEN_SIZE": 32, "NUM_LAYERS": 3}}, {"network.hidden": [32] * 3}),
        ({"model_para__actor__model_config": {"LR": 1e-3}}, {"optimiser.learning_rate": 1e-3}),
        ({"model_para__actor__model_config": {"ENTROPY_LOSS": 0}}, {"loss.entropy_cost": 0}),
        ({"alg_para__alg_config__GAMMA": 0.9}, {"loss.discount": 0.9}),
        ({"alg_para__alg_config__ENTROPY_LOSS": 0}, {"loss.entropy_cost": 0}),
        ({"model_para__actor__model_name": "ImpalaMlp"}, {"network.torso": "mlp"}),
        ({"model_para__actor__model_name": "ImpalaCnn"}, {"network.torso": "nature"}),
        ({"alg_para__alg_config__episode_len": None}, {"actors.unroll_length": 200}),
        ({"agent_para__agent_config__complete_step": 5000}, {"run.total_steps": 5000}),
        ({"env_num": 1, "alg_para__alg_config": {"prepare_times_per_train": 8}}, {"actors.envs": 1, "actors.slots": 4}),
        (
            {"model_para__actor__model_config": {"opt_type": "rmsprop", "lr_schedule": [[0, 0.01], [20000, 1e-6]]}},
            {"optimiser.name": "rmsprop_tf", "optimiser.learning_rate": 0.01, "optimiser.schedule": "linear"},
        ),
    ],
)
def test_a_setting_arrives(changes: dict[str, Any], wanted: dict[str, Any]) -> None:
    if "env_num" in changes:
        changes = {**changes, "alg_para__alg_config": {**changes["alg_para__alg_config"], "episode_len": 32}}
    config, _ = converted(CARTPOLE, **changes)
    assert {key: config.get(key) for key in wanted} == wanted


@pytest.mark.parametrize("key", NO_COUNTERPART)
def test_every_key_without_a_counterpart_is_named_with_a_reason(key: str) -> None:
    _, notes = converted(CARTPOLE, **{key.replace(".", "__"): "something"})
    assert f"{key}: no counterpart: {NO_COUNTERPART[key]}" in notes


def test_an_unknown_key_is_named_too_and_a_switch_that_is_off_is_not() -> None:
    _, notes = converted(CARTPOLE, alg_para__alg_config__warp=9, speedup=False)
    assert "alg_para.alg_config.warp: unknown, left out" in notes
    assert not any("speedup" in note or "vision" in note for note in notes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alg_para__alg_name": "PPO"}, ["alg_para.alg_name", "'PPO'"]),
        ({"alg_para__alg_name": "IMPALOpt"}, ["'IMPALOpt'", "'IMPALAOpt'"]),
        ({"env_para__env_name": "StarCraft2Env"}, ["env_para.env_name", "'StarCraft2Env'"]),
        ({"env_para__env_info__name": None}, ["env_para.env_info.name", "missing"]),
        ({"model_para__actor__model_name": "DqnMlp"}, ["model_name", "'DqnMlp'"]),
        ({"env_num": "ten"}, ["env_num", "'ten'", "int"]),
        ({"env_num": 1.5}, ["env_num", "1.5"]),
        ({"env_num": True}, ["env_num", "True"]),
        ({"agent_para__agent_config__complete_step": 0}, ["complete_step", "0"]),
        ({"model_para__actor__model_config": {"LR": -1}}, ["optimiser.learning_rate", "-1"]),
        ({"model_para__actor__model_config": {"opt_type": "sgd"}}, ["opt_type", "'sgd'", "rmsprop"]),
        ({"model_para__actor__model_config": {"lr_schedule": 3}}, ["lr_schedule", "3"]),
        ({"alg_para__alg_config__BATCH_SIZE": "x"}, ["BATCH_SIZE", "'x'"]),
        ({"env_num": 0}, ["env_num", "0"]),
        ({"alg_para__alg_config__episode_len": -5}, ["episode_len", "-5"]),
    ],
)
def test_what_cannot_be_converted_is_one_line(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as mistake:
        converted(CARTPOLE, **changes)
    assert [word for word in words if word not in str(mistake.value)] == [], mistake.value
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("total", [1, 2, 10, 32, 97, 250])
def test_environments_are_shared_out_evenly(total: int, batch: int) -> None:
    envs = envs_per_actor(total, batch)
    count = max(1, round(total / envs))
    assert abs(envs * count - total) <= 0.1 * total
    config = {"actors": {"count": count, "envs": envs, "slots": 64}, "learner": {"batch_size": batch}}
    check_resolved(resolve(validate(config)))


# ---- the command


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cartpole_impala_ms.yaml"
    path.write_text(CARTPOLE)
    return path


def test_the_command_prints_or_writes_a_file_that_trains(file: Path) -> None:
    printed = command_line("convert", file.name)
    assert printed.code == 0
    assert "model_para.actor.state_dim: no counterpart: the environment defines it" in printed.err
    assert "# model_para.actor.state_dim: no counterpart: the environment defines it\n" in printed.out
    written = command_line("convert", file.name, "--out", "mine.yaml")
    assert (written.code, written.err) == (0, printed.err)
    assert "pronk train mine.yaml" in written.out
    assert Path("mine.yaml").read_text() == printed.out
    assert load_config("mine.yaml").env.id == "CartPole-v0"
    again = command_line("convert", file.name, "--out", "mine.yaml")
    assert (again.code, again.err) == (2, "error: --out: mine.yaml exists already; choose another name\n")


@pytest.mark.parametrize("arguments", [["train"], ["show"], ["bench"]])
def test_other_commands_say_to_convert_it(file: Path, arguments: list[str]) -> None:
    ended = command_line(*arguments, file.name)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {file.name} is a XingTian file")
    assert f"pronk convert {file.name} > mine.yaml" in ended.err
    assert ended.err.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("text", "words"),
    [("env: {id: catch}", ["not a XingTian file", "alg_para"]), ("", ["empty"]), ("- 1", ["sections"])],
)
def test_a_file_of_another_kind_is_refused(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text)
    ended = command_line("convert", file.name)
    assert (ended.code, ended.out) == (2, "")
    assert [word for word in words if word not in ended.err] == [], ended.err


LIKELIEST = ("evaluation.deterministic=true", "evaluation.episodes=100")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_converted_cartpole_file_trains_to_solved(file: Path) -> None:
    assert command_line("convert", file.name, "--out", "mine.yaml").code == 0
    pronk = [sys.executable, "-m", "pronk"]
    done = subprocess.run(
        [*pronk, "train", "mine.yaml", "-t", "train_with_evaluate", *LIKELIEST, "--run-dir", "run", "--quiet"],
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["outcome"] == "solved"
    assert summary["evaluation"]["mean"] >= 195


def test_lists_of_values_become_a_sweep(tmp_path: Path) -> None:
    """XingTian trains every combination of the lists in `alg_config` and `agent_config`."""
    tree = yaml.safe_load(CARTPOLE)
    tree["alg_para"]["alg_config"]["LR"] = [0.001, 0.0003]
    tree["agent_para"]["agent_config"]["complete_step"] = [1000, 2000]
    config, notes = convert(tree)
    assert config["sweep"]["list"] == [
        {"optimiser.learning_rate": rate, "run.total_steps": steps}
        for rate in (0.001, 0.0003)
        for steps in (1000, 2000)
    ]
    assert "learning_rate" not in config["optimiser"]
    assert len(notes) == len(set(notes))
    (tmp_path / "theirs.yaml").write_text(yaml.safe_dump(tree))
    ended = command_line("convert", tmp_path / "theirs.yaml", "--out", tmp_path / "mine.yaml")
    assert f"pronk sweep {tmp_path / 'mine.yaml'}" in ended.out
    listed = command_line("sweep", tmp_path / "mine.yaml", "--dry-run")
    assert listed.code == 0
    assert listed.out.splitlines()[0] == "learning_rate=0.001,total_steps=1000"
    assert listed.out.splitlines()[-1] == "4 members"


def test_a_list_with_one_value_is_that_value() -> None:
    tree = yaml.safe_load(CARTPOLE)
    tree["alg_para"]["alg_config"]["LR"] = [0.002]
    config, _ = convert(tree)
    assert "sweep" not in config
    assert config["optimiser"]["learning_rate"] == 0.002


POPULATION = {
    "population_size": 3,
    "pbt_interval": 2000,
    "metric_key": "mean_episodic_reward",
    "perturb_factor_delta": 0.25,
    "top_rate": 0.2,
    "hyperparameters_mutations": {
        "LR": {"min": 0.0001, "max": 0.0005},
        "grad_norm_clip": [60.0, 50.0, 40.0],
        "CRITIC_LOSS_COEF": [1.0, 0.5],
    },
}


def test_pbt_config_becomes_a_population(tmp_path: Path) -> None:
    tree = yaml.safe_load(CARTPOLE) | {"use_pbt": True, "pbt_config": POPULATION}
    (tmp_path / "theirs.yaml").write_text(yaml.safe_dump(tree))
    ended = command_line("convert", tmp_path / "theirs.yaml", "--out", tmp_path / "mine.yaml")
    assert ended.code == 0
    assert f"pronk population {tmp_path / 'mine.yaml'}" in ended.out
    assert "top_rate: no counterpart" in ended.err
    assert "CRITIC_LOSS_COEF: no counterpart" in ended.err
    plan = read_population(tmp_path / "mine.yaml")  # valid, and all that is left of it:
    assert (plan.options.size, plan.ready_steps, plan.burn_in_steps) == (3, 2000, 0)
    assert plan.options.perturb_factor == 1.25
    assert plan.options.priors == {
        "optimiser.learning_rate": {"low": 0.0001, "high": 0.0005},
        "optimiser.max_gradient_norm": {"choices": [60.0, 50.0, 40.0]},
    }
    assert plan.total_steps == 10_000_000


def test_without_use_pbt_its_configuration_is_left_out() -> None:
    tree = yaml.safe_load(CARTPOLE) | {"use_pbt": False, "pbt_config": POPULATION}
    config, notes = convert(tree)
    assert "population" not in config
    assert not any("pbt" in note for note in notes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"population_size": 1}, "pbt_config.population_size must be an integer of at least 2, got 1"),
        ({"metric_type": "min"}, "pbt_config.metric_type"),
        ({"hyperparameters_mutations": {"CRITIC_LOSS_COEF": [1.0]}}, "none of CRITIC_LOSS_COEF can be converted"),
        ({"hyperparameters_mutations": {"LR": 0.1}}, "LR must be a list of values or {min, max}, got 0.1"),
    ],
)
def test_a_pbt_config_that_cannot_be_converted(changes: dict[str, Any], words: str) -> None:
    tree = yaml.safe_load(CARTPOLE) | {"use_pbt": True, "pbt_config": POPULATION | changes}
    with pytest.raises(UserError, match=re.escape(words)):
        convert(tree)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("env_num: .inf", "env_num must be an integer from 1 to 1e+15, got inf"),
        ("agent_para: {agent_num: .nan}", "agent_para.agent_num must be an integer from 1 to 1e+15, got nan"),
        (f"env_num: {10**400}", f"env_num must be an integer from 1 to 1e+15, got {10**199}..."),
        ("env_para: {env_info: {name: CartPole-v1, vector_env_size: 1.0e+308}}", "vector_env_size must be an integer"),
        (f"model_para: {{actor: {{model_config: {{lr_schedule: [[0, {10**400}]]}}}}}}", "lr_schedule must be pairs"),
        ("model_para: {actor: {model_config: {NUM_LAYERS: 1000000000000}}}", "NUM_LAYERS must be at most 1000"),
        (f"alg_para: {{alg_config: {{a: {list(range(40))}, b: {list(range(40))}}}}}", "1,600 combinations"),
        ("use_pbt: true\npbt_config: {population_size: 2, hyperparameters_mutations: {1: [2]}}", "none of 1 can be"),
        (
            "use_pbt: true\n"
            "pbt_config: {population_size: 2, hyperparameters_mutations: {LR: [1]}, perturb_factor_delta: much}",
            "pbt_config.perturb_factor_delta must be a number between 0 and 1, got 'much'",
        ),
        (
            "use_pbt: true\n"
            "pbt_config: {population_size: 2, hyperparameters_mutations: {LR: [1]}, "
            f"perturb_factor_delta: {10**400}}}",
            "pbt_config.perturb_factor_delta must be a number between 0 and 1, got 1",
        ),
    ],
)
def test_values_that_cannot_be_meant_are_mistakes(line: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)):
        convert({"env_para": {"env_info": {"name": "CartPole-v1"}}} | yaml.safe_load(line))


def test_a_number_without_a_value_is_the_default() -> None:
    tree = yaml.safe_load(CARTPOLE)
    assert convert(tree | {"env_num": None}).config == convert(tree | {"env_num": 1}).config


def test_a_key_with_line_breaks_adds_nothing_to_the_new_file(tmp_path: Path) -> None:
    tree = yaml.safe_load(CARTPOLE) | {"odd\nlearner: {batch_size: 7}\n#": 1}
    (tmp_path / "theirs.yaml").write_text(yaml.safe_dump(tree))
    new = tmp_path / "mine[v2].yaml"  # what looks like rich's markup is printed as it is
    ended = command_line("convert", tmp_path / "theirs.yaml", "--out", new)
    assert ended.code == 0
    assert f"pronk train {new}" in ended.out
    assert read_yaml(new) == convert(yaml.safe_load(CARTPOLE)).config


def test_a_huge_number_of_explorers_needs_neither_time_nor_memory() -> None:
    assert envs_per_actor(10**12, 4) == 16
