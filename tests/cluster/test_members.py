import pytest

from pronk.cluster.members import listening


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("listening on 0.0.0.0:5050 (TLS, token)", (0, 5050)),
        ("learner 3: listening on 10.0.0.1:81 (TLS, token)", (3, 81)),
        ("waiting for actors: pronk actor 0.0.0.0:5050", None),
    ],
)
def test_who_listens_where(line, told):
    assert listening(line) == told
