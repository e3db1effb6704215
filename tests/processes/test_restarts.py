"""The restart policy: what counts, and how long the pauses are."""

from pronk.processes.restarts import NEVER, RestartPolicy, Restarts, describe_exit, end_by_exit


def test_pauses_grow_up_to_a_limit_and_failures_in_a_row_end_it():
    restarts = Restarts(RestartPolicy(max_failures=6, first_pause=0.1, last_pause=10.0))
    pauses = [restarts.pause_after(True, 1.0, False) for _ in range(6)]
    assert pauses == [0.1, 0.4, 1.6, 6.4, 10.0, None]


def test_a_failure_after_steady_work_is_the_first_again():
    restarts = Restarts(RestartPolicy(max_failures=3, steady_seconds=60.0))
    for seconds, progressed, failures in [(1, True, 1), (59, True, 2), (61, True, 1), (61, False, 2)]:
        assert restarts.pause_after(True, seconds, progressed) is not None
        assert restarts.failures == failures
    assert restarts.pause_after(True, 1.0, True) is None


def test_kills_count_apart_and_only_without_progress():
    restarts = Restarts(RestartPolicy(max_failures=2, max_kills=3))
    assert [restarts.pause_after(False, 0.1, True) for _ in range(100)] == [0.1] * 100
    assert [restarts.pause_after(False, 0.1, False) is None for _ in range(2)] == [False, True]


def test_limits_may_be_absent_or_forbid_any_restart():
    endless = Restarts(RestartPolicy(max_failures=None, max_kills=None))
    assert all(endless.pause_after(fault, 0.0, False) is not None for fault in [True, False] * 1000)
    assert Restarts(NEVER).pause_after(True, 1e9, True) is None
    assert Restarts(NEVER).pause_after(False, 1e9, True) is None


def test_whose_fault_an_exit_is():
    faults = {code: end_by_exit(code, "").is_fault for code in (0, 1, -11, -6, -9, -15)}
    assert faults == {0: True, 1: True, -11: True, -6: True, -9: False, -15: False}
    assert end_by_exit(1, "last words").cause == "exit code 1; its log ends with:\nlast words"
    assert describe_exit(-40) == "killed by signal 40"
