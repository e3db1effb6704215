import json

import pytest
from processes import Training


@pytest.mark.slow
def test_a_slow_environment_is_diagnosed_on_the_screen_and_in_the_run(tmp_path):
    size = ("actors.count=1", "actors.envs=2", "learner.batch_size=2")
    limit = ("run.total_steps=1e9", "run.total_seconds=30")
    with Training(tmp_path / "run", "faulty:SlowCatch", *size, *limit) as training:
        assert training.wait(120) == 0
        said = training.err + training.out
    assert said.count("diagnosis: the learner waits for actors") == 1
    (note,) = json.loads((tmp_path / "run/notes.json").read_text())["notes"]
    assert note["illness"] == "learner idle"
    assert "learner.passes=" in note["message"]
