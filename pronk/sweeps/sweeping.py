"""A sweep from its file to its report: makes or opens its directory, runs its members, sums up.

runs/NAME-DATE-TIME/
    sweep.yaml  sweep.json      the file with all settings; members, states, results
    MEMBER/                     an ordinary run directory for each member
    logs/MEMBER.log             what it printed
    plot.png                    learning curves, at the end
    search.journal              Optuna's, if there is a search
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pronk.cluster.cluster_run import marked
from pronk.runs.directory import RunDirectory
from pronk.runs.reading import Run, read_json
from pronk.runs.trust import remember
from pronk.sweeps.capacity import capacity_for
from pronk.sweeps.expand import Member, Sweep, corners, parse_sweep
from pronk.sweeps.plan_folder import PlanFolder, without_cluster
from pronk.sweeps.report import FILE, Group, announce_missing_plot, draw, groups_of, write_report
from pronk.sweeps.running import COMPLETE, Record, SweepRun

if TYPE_CHECKING:
    from pronk.sweeps.search import Search


class Display(Protocol):
    """Shows a sweep while it runs."""

    title: str
    """May be changed at any time."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *exception: Any) -> None: ...
    def show(self, records: Any) -> None:
        """Show how far everything is."""
        ...

    def changed(self, record: Record | None, records: Any) -> None:
        """Show that a member started or ended."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How a sweep ended."""

    folder: Path
    records: list[Record]
    groups: list[Group]
    interrupted: bool
    plot: Path | None

    @property
    def failed(self) -> list[Record]:
        """Return the members that failed."""
        return [record for record in self.records if record.state == "failed"]

    @property
    def unfinished(self) -> list[Record]:
        """Return the members that can be continued."""
        return [record for record in self.records if record.state in ("waiting", "interrupted")]


def run_sweep(
    sweep: Sweep,
    folder: Path | None,
    *,
    resume: bool,
    retry: bool,
    display: Callable[[int, int], Display],
    say: Callable[[str], None],
) -> Outcome:
    """Run the members of a sweep that are not complete.

    Args:
        sweep: what to run.
        folder: its directory; None makes a new one under runs/.
        resume: continue the sweep in `folder`.
        retry: also run failed members again.
        display: makes the display, from how many members run at a time and how many there are.
        say: gets warnings.

    Raises:
        UserError: a mistake in the sweep, or in where it is to be written.
    """
    if sweep.options.search:
        from pronk.sweeps.search import import_optuna

        import_optuna()  # before anything is written
    announce_missing_plot(say)
    members = sweep.members()
    sampled = [member.config for member in members] or [sweep.config_of(one) for one in corners(sweep.options)]
    expected = len(members) or (sweep.options.trials or 0) * len(sweep.seeds)
    at_a_time = None if sweep.options.at_a_time == "auto" else sweep.options.at_a_time
    with contextlib.ExitStack() as stack:
        capacity = stack.enter_context(capacity_for(sampled, expected, at_a_time))
        folder = SWEEPS.open(sweep, folder, resume)
        for config in sampled:
            remember(config, say)
        stack.enter_context(RunDirectory(folder).locked())
        marker = stack.enter_context(marked(folder))
        retry = retry or (resume and sweep.options.retry == "failed")
        proposals, records = opened(sweep, folder, members, retry)
        write = reporter(sweep, folder, capacity.at_a_time)
        shown = stack.enter_context(display(capacity.at_a_time, expected))

        def changed(record: Record | None) -> None:
            write(run.records, "running")
            shown.changed(record, run.records)

        run = SweepRun(
            folder,
            records,
            capacity,
            sweep.options.metric,
            marker=marker,
            proposals=proposals,
            show=shown.show,
            changed=changed,
            say=say,
        )
        completed = run.run()
        write(run.records, final_state(run.records, completed))
        shown.show(run.records)
    plot = draw(folder) if completed else None
    return Outcome(folder, run.records, groups_of(run.records), not completed, plot)


def opened(sweep: Sweep, folder: Path, members: list[Member], retry: bool) -> tuple[Search | None, list[Record]]:
    """Return the search, if there is one, and the records of all members so far."""
    proposals = search_for(sweep, folder, retry)
    records = restored(proposals.known() if proposals else members, folder, sweep.options.metric, retry)
    if proposals:
        conclude_ended(proposals, records)
    return proposals, records


def search_for(sweep: Sweep, folder: Path, retry: bool) -> Search | None:
    """Return the search that proposes members, or None if they are known beforehand."""
    if not sweep.options.search:
        return None
    from pronk.sweeps.search import Search

    return Search(sweep, folder, retry)


def reporter(sweep: Sweep, folder: Path, at_a_time: int) -> Callable[[list[Record], str], None]:
    """Return the function that writes sweep.json, with the seconds since this call."""
    began = time.time()

    def write(records: list[Record], state: str) -> None:
        facts = {"name": sweep.name, "state": state, "metric": sweep.options.metric, "at_a_time": at_a_time}
        write_report(folder, records, **facts, seconds=time.time() - began)

    return write


def final_state(records: list[Record], completed: bool) -> str:
    if not completed or any(record.state == "interrupted" for record in records):
        return "interrupted"
    return "failed" if any(record.state == "failed" for record in records) else "finished"


def comparable(sweep: Sweep) -> dict[str, Any]:
    """Return what may not change when a sweep is continued. More seeds, values or trials are welcome."""
    return {"base": sweep.base, "sweep.search": sweep.options.search, **without_cluster(sweep.fixed)}


SWEEPS = PlanFolder("sweep", parse_sweep, comparable)


def restored(members: list[Member], folder: Path, metric: str, retry: bool) -> list[Record]:
    """Return the members with their states from earlier sessions. Complete ones are not run again."""
    stored = {entry["name"]: entry for entry in read_json(folder / FILE).get("members", [])}
    return [restore(member, folder, stored.get(member.name, {}), metric, retry) for member in members]


def restore(member: Member, folder: Path, stored: dict[str, Any], metric: str, retry: bool) -> Record:
    record = Record(member, folder / member.name)
    record.look(metric)
    outcome = Run(record.path).summary.get("outcome")
    if outcome in COMPLETE:
        record.state = outcome
    elif stored.get("state") == "pruned":
        record.state = "pruned"
    elif not retry and "failed" in (outcome, stored.get("state")):
        record.state = "failed"
        record.cause = stored.get("cause") or Run(record.path).summary.get("failure")
    return record


def conclude_ended(proposals: Any, records: list[Record]) -> None:
    """Report to a search the trials that ended just before the sweep was killed."""
    for trial in {record.member.trial for record in records}:
        ended = [record for record in records if record.member.trial == trial]
        if all(record.state in (*COMPLETE, "failed") for record in ended):
            values = [record.value for record in ended if record.state in COMPLETE and record.value is not None]
            pruned = any(record.state == "pruned" for record in ended)
            proposals.conclude(trial, sum(values) / len(values) if values else None, pruned)
