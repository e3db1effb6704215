"""A reward that comes with a truncated step is learnt, whoever resets the environment and when."""

import pytest

from pronk.config import load_config
from pronk.starting import train

MODES = {
    "sync": ("scripted:Bonus",),
    "async": ("scripted:Bonus", "env.vectorization=async"),
    "next-step": ("scripted:NextStepBonus",),
    "same-step": ("scripted:SameStepBonus",),
    "terminated": ("scripted:Bonus", "env.kwargs.terminates=true"),
}
SETTINGS = (
    "transport=local",
    "actors.count=1",
    "actors.envs=16",
    "actors.unroll_length=10",
    "learner.batch_size=16",
    "network.hidden=[16]",
    "optimiser.learning_rate=0.01",
    "run.total_steps=12000",
    "run.stop_return=0.9",
)


@pytest.mark.parametrize("mode", MODES)
def test_the_reward_of_a_truncated_last_step_is_learnt(mode, tmp_path):
    env, *changes = MODES[mode]
    summary = train(load_config(env, [*SETTINGS, *changes]), run_dir=tmp_path / "run", say=print)
    assert summary["episode_return"] >= 0.9
