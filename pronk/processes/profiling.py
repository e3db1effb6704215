"""Where the time of a process goes: a table of its parts, and a trace for Perfetto (https://ui.perfetto.dev).

    PROFILE/learner.txt       share of the time in each part, and how long its calls took
    PROFILE/learner.json.gz   the parts and every operation of torch during one second

While a profile is made, the methods that make up the parts are replaced by ones that look at the clock first. Without
a profile nothing is replaced, so nothing is slower. A sampler would cost even less, but a thread sees another's stack
only where that one lets go of the interpreter, and the longest call is not in its samples.

Nothing is measured before the first second has passed: by then everything that is only done once has been done.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pronk.processes.descriptors import STDERR, redirected
from pronk.processes.parts_of_time import Parts, TimeSpent, table_of

WARM_UP_SECONDS = 1.0
TRACE_SECONDS = 1.0  # a second has tens of thousands of operations


class Method(NamedTuple):
    """One that belongs to a part."""

    owner: Any
    """An object, class or module; or the last two as `module:Class`, which is left out if it is not imported."""
    name: str
    part: str
    until_entered: bool = False
    """It returns a `with` block, and only entering that counts."""


class Profile:
    """Profiles the thread that calls `tick`, for `seconds`."""

    def __init__(
        self, folder: Path, name: str, parts: Parts, methods: Sequence[Method], seconds: float, gap: float = 0.0
    ) -> None:
        """The files are `folder`/`name`.txt and .json.gz. `gap`: seconds between the table and the trace."""
        self._folder, self._name, self._parts, self._methods = folder, name, parts, methods
        self._stages = [
            (self._begin_table, seconds),
            (self._end_table, gap),
            (self._begin_trace, TRACE_SECONDS),
            (self._end_trace, 0.0),
        ]
        self._next_at: float | None = None
        self._clock: Clock | None = None
        self._trace: Any = None
        self._labels: Labels | None = None
        self._replaced = contextlib.ExitStack()

    def tick(self) -> None:
        """Begin or end, if it is time to. Call it again and again, from the thread that is to be profiled."""
        now = time.monotonic()
        if self._next_at is None:
            self._next_at = now + WARM_UP_SECONDS
        elif self._stages and now >= self._next_at:
            stage, pause = self._stages.pop(0)
            stage()
            self._next_at = time.monotonic() + pause  # starting torch's profiler takes a second or two

    def close(self) -> None:
        """Write what there is, if the run ended before the profile did."""
        if self._clock is not None:
            self._end_table()
        if self._trace is not None:
            self._end_trace()
        self._stages.clear()

    def _begin_table(self) -> None:
        self._clock = Clock()
        self._replaced.enter_context(replaced(self._methods, self._clock))

    def _end_table(self) -> None:
        assert self._clock is not None
        self._replaced.close()
        seconds, spent = self._clock.end()
        self._clock = None
        with self._writing("txt") as path:
            path.write_text(table_of(self._parts, seconds, spent), encoding="utf-8")

    def _begin_trace(self) -> None:
        from torch.profiler import profile

        self._trace, self._labels = profile(), Labels()
        with muted_errors():
            self._trace.start()
        self._replaced.enter_context(replaced(self._methods, self._labels))

    def _end_trace(self) -> None:
        assert self._labels is not None
        self._replaced.close()
        self._labels.end()
        trace, self._trace = self._trace, None
        with muted_errors():
            trace.stop()
        with self._writing("json.gz") as path:
            trace.export_chrome_trace(str(path))

    @contextlib.contextmanager
    def _writing(self, kind: str) -> Iterator[Path]:
        """Write a file in this block. A full disk is reported; what is profiled continues."""
        path = self._folder / f"{self._name}.{kind}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            yield path
        except OSError as error:
            print(f"cannot write {path}: {error}", file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                path.unlink()  # it may be incomplete


@contextlib.contextmanager
def muted_errors() -> Iterator[None]:
    """Silence what native code writes to standard error: the profiler reports its own start and stop there."""
    with open(os.devnull, "wb") as nowhere, redirected(STDERR, nowhere.fileno()):
        yield


class Recorder(Protocol):
    """What learns when a part begins and ends. Parts may be inside one another."""

    def enter(self, part: str) -> None: ...
    def leave(self) -> None: ...


class Clock:
    """Measures the time of each part without the parts inside it."""

    def __init__(self) -> None:
        self._spent: dict[str, TimeSpent] = {}
        self._open: list[str] = []  # parts
        self._seconds: list[float] = []  # of each of them so far
        self._began = self._at = time.perf_counter()

    def enter(self, part: str) -> None:
        """See `Recorder`."""
        now = time.perf_counter()
        if self._open:
            self._seconds[-1] += now - self._at
        self._open.append(part)
        self._seconds.append(0.0)
        self._at = now

    def leave(self) -> None:
        """See `Recorder`. A call that began before the profile, or outlasts it, does not count as one."""
        now = time.perf_counter()
        if self._open:
            part, seconds = self._open.pop(), self._seconds.pop() + now - self._at
            if part not in self._spent:
                self._spent[part] = TimeSpent()
            self._spent[part].add(seconds)
        self._at = now

    def end(self) -> tuple[float, dict[str, TimeSpent]]:
        """Return how many seconds have passed in all, and in each part."""
        while self._open:  # the end may come in the middle of a part
            self.leave()
        return time.perf_counter() - self._began, self._spent


class Labels:
    """Puts the names of the parts into torch's trace."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def enter(self, part: str) -> None:
        """See `Recorder`."""
        from torch.profiler import record_function

        self._open.append(record_function(part))
        self._open[-1].__enter__()

    def leave(self) -> None:
        """See `Recorder`."""
        if self._open:
            self._open.pop().__exit__(None, None, None)

    def end(self) -> None:
        """Leave every part."""
        while self._open:
            self.leave()


@contextlib.contextmanager
def replaced(methods: Sequence[Method], recorder: Recorder) -> Iterator[None]:
    """While the block lasts, these methods tell the recorder when they begin and end, in this thread."""
    with contextlib.ExitStack() as stack:
        for method in methods:
            owner = found(method.owner) if isinstance(method.owner, str) else method.owner
            if owner is not None:
                stack.enter_context(swapped(owner, method.name, recording(owner, method, recorder)))
        yield


def found(address: str) -> Any:
    """Return the `module:Class` or `module` if it is imported, else None."""
    module, _, name = address.partition(":")
    return getattr(sys.modules[module], name) if module in sys.modules and name else sys.modules.get(module)


def recording(owner: Any, method: Method, recorder: Recorder) -> Callable[..., Any]:
    """Return a method that does the same, and reports to the recorder."""
    original, thread = getattr(owner, method.name), threading.get_ident()

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        if threading.get_ident() != thread:
            return original(*arguments, **named)
        recorder.enter(method.part)
        try:
            return original(*arguments, **named)
        finally:
            recorder.leave()

    def entering(*arguments: Any, **named: Any) -> Any:
        return Entering(original(*arguments, **named), method.part, recorder)

    return entering if method.until_entered else call


class Entering:
    """A `with` block that tells the recorder when it is entered, and when that is done."""

    def __init__(self, block: Any, part: str, recorder: Recorder) -> None:
        self._block, self._part, self._recorder = block, part, recorder

    def __enter__(self) -> Any:
        self._recorder.enter(self._part)
        try:
            return self._block.__enter__()
        finally:
            self._recorder.leave()

    def __exit__(self, *error: Any) -> Any:
        return self._block.__exit__(*error)


@contextlib.contextmanager
def swapped(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Give an object, class or module another function while the block lasts."""
    own, before = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:  # it was inherited, or a method of the object's class
            delattr(owner, name)
