import platform

import pytest
import torch

from pronk import device
from pronk.device import BFLOAT16_PROBE, check_precision, choose_device, probe
from pronk.types import UserError

CPU = torch.device("cpu")

# Runs an instruction that no processor has, as oneDNN does where AMX is advertised but cannot be run.
ILLEGAL = {"x86_64": b"\x0f\x0b", "aarch64": b"\x00\x00\x00\x00"}.get(platform.machine())
DIES_OF_SIGILL = f"""
import ctypes, mmap
code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write({ILLEGAL!r})
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""


def test_devices_by_name():
    assert choose_device("cpu") == CPU
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("abacus", "cuda:99", "meta"):
        with pytest.raises(UserError, match=f"learner.device: '{name}'"):
            choose_device(name)


@pytest.mark.skipif(ILLEGAL is None, reason="the illegal instruction is written down for x86_64 and aarch64 only")
def test_a_probe_that_dies_of_an_illegal_instruction_refuses_bfloat16_in_one_line(monkeypatch):
    monkeypatch.setattr(device, "BFLOAT16_PROBE", DIES_OF_SIGILL)
    with pytest.raises(UserError) as caught:
        check_precision(CPU, "bfloat16")
    message = str(caught.value)
    assert message.startswith("learner.precision: bfloat16")
    assert "was killed by SIGILL" in message
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in message
    assert "learner.precision=float32" in message
    assert "\n" not in message


def test_a_probe_that_hangs_or_fails_is_a_problem_too(monkeypatch):
    assert probe("raise SystemExit('no such kernel')") == "failed with exit code 1: no such kernel"
    monkeypatch.setattr(device, "PROBE_SECONDS", 0.5)
    assert probe("while True: pass") == "did not end within 0.5 s"


def test_nothing_is_probed_unless_bfloat16_is_asked_for_on_a_cpu(monkeypatch):
    monkeypatch.setattr(device, "probe", lambda program: pytest.fail("probed"))
    check_precision(CPU, "float32")
    check_precision(torch.device("cuda"), "bfloat16")


def test_the_probe_runs_once_per_process(tmp_path):
    count = f"open({str(tmp_path / 'runs')!r}, 'a').write('x')"
    assert [probe(count), probe(count)] == [None, None]
    assert (tmp_path / "runs").read_text() == "x"


def test_the_real_probe_passes_or_says_why():
    problem = probe(BFLOAT16_PROBE)
    assert problem is None or problem.startswith("was killed by SIGILL")
