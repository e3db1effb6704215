"""A child process for the supervisor's tests: does what its job says, without any of Pronk's training."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from typing import Any

from pronk.processes.channel import Channel
from pronk.processes.messages import Alive, Evaluate, Evaluated
from pronk.types import UserError


def main(job: dict[str, Any], channel: Channel) -> None:
    match job["do"]:
        case "echo":
            for message in channel:
                assert isinstance(message, Evaluate)
                channel.send(Evaluated({"path": message.path, "pid": os.getpid()}))
        case "raise":
            raise RuntimeError("the wheel came off")
        case "mistake":
            raise UserError("run.seed: must be a number")
        case "exit":
            sys.exit(3)
        case "print and echo":
            print("x" * 100_000)
            print("y", file=sys.stderr, flush=True)
            channel.send(Evaluated({}))
            hang_here()
        case "hang silently":
            hang_here()
        case "say whether it compiles":
            channel.send(Evaluated({"compiles": not sys.dont_write_bytecode}))
            hang_here()
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "work, then raise":
            channel.send(Evaluated({}))
            time.sleep(0.3)  # so that the parent sees it work
            raise RuntimeError("the wheel came off")
        case "hang":
            channel.send(Alive())
            hang_here()
        case "hang after failing":
            import threading

            threading.Thread(target=hang_here).start()
            raise RuntimeError("the wheel came off")
        case "start another":
            other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            channel.send(Evaluated({"other": other.pid}))
            hang_here()
        case "flood":
            for number in itertools.count():
                print(f"{number:09d}", "x" * 1000, flush=True)
        case "print":
            print("\n".join(f"line {number}" for number in range(100)), flush=True)
            sys.exit(4)


def hang_here() -> None:
    time.sleep(600)
