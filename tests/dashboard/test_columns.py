from pronk.dashboard.columns import columns


def test_columns_hold_numbers_or_nothing() -> None:
    lines = [{"a": 1, "b": None, "c": "x"}, {"a": float("nan"), "d": 0.123456789012}, {"a": True, "b": 2**60}]
    assert columns(lines) == {"a": [1, None, None], "b": [None, None, 2.0**60], "d": [None, 0.1234568, None]}
