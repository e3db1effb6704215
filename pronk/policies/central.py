"""Central inference: one server beside the learner acts for all of its actors, in batches (SEED RL, arXiv 1910.06591).

    actor of this machine --mailbox---------------------------.
                                                               >--> server (`central_process.py`)
    actor of another one --gRPC--> gateway --many mailboxes---'

Parameters go from the learner's memory straight to the server. The server computes the parameters of each action's
distribution, and the actor samples from it (`central_policy.py`). So the server has neither random numbers nor a
memory of its own: all that it needs is in the mailboxes (`transport/mailboxes.py`), and a server that was killed at any
instant is replaced by one that reads them. An actor notices only a pause.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import asdict
from typing import Any

from pronk.config import ResolvedConfig
from pronk.layout import Layout
from pronk.policies.base import Inference, InferenceSetup, Policy, RemoteActing
from pronk.processes.messages import Served
from pronk.processes.restarts import RestartPolicy
from pronk.processes.supervisor import Child, Start, SupervisedProcess
from pronk.transport.mailboxes import Mailboxes, MailboxTicket, RequestLayouts
from pronk.transport.memory import anonymous_memory
from pronk.types import ActionSpec, ArraySpec, EnvSpec, UserError, map_tree

START_SECONDS = 60.0  # for the server to begin, on a busy machine
GRACE_SECONDS = 2.0  # for the server to finish its batch when the run ends
STEADY_SECONDS = 60.0
TRANSPORTS = ("shared_memory", "grpc")


class CentralInference(Inference):
    """The learner's half: the mailboxes, and the server, a supervised process."""

    def __init__(self, setup: InferenceSetup) -> None:
        super().__init__(setup)
        specs, settings = setup.layout.specs, setup.config.actors
        self._state_spec = map_tree(lambda leaf: unbatched(leaf, 1), specs["state"])
        self._layouts = RequestLayouts(
            map_tree(lambda leaf: unbatched(leaf, 2), specs["observation"]),
            self._state_spec,
            ActionSpec(specs["action"].shape[2:], specs["action"].categories).parameter_count,
            settings.envs,
        )
        own = settings.count if setup.config.transport.name == "shared_memory" else 0
        self._clients = [SharedMailboxes(self._layouts, 1) for _ in range(own)]
        self._answered = self._answered_before = 0  # observations: in all lives, and in those before this one
        self._life, self._serving_since = 0, 0.0
        child = Child(
            name="the inference server",
            program="pronk.policies.central_process",
            log=setup.logs / "inference.log",
            prepare=self._prepare,
            policy=RestartPolicy(settings.max_failures, steady_seconds=STEADY_SECONDS),
            progress=lambda: self._answered,
            # Half of an actor's, so that an actor that waits for a hanging server does not count as hanging itself.
            timeout_seconds=settings.timeout_seconds / 2,
            silent_seconds=self._silent_seconds,
            timeout_key="half of actors.timeout_seconds",
            errors_are_final=lambda: not self._answered,
        )
        self._process = SupervisedProcess(child, setup.say)

    def __exit__(self, *error: object) -> None:
        self._process.stop(time.monotonic() + GRACE_SECONDS)
        for client in self._clients:
            client.close()

    @staticmethod
    def check(config: ResolvedConfig) -> None:
        """See `Inference.check`."""
        if config.transport.name not in TRANSPORTS:
            raise UserError(
                f"actors.inference=central needs transport={' or '.join(TRANSPORTS)}, got "
                f"transport={config.transport.name}: the server is a process beside the learner"
            )

    @staticmethod
    def policy(config: ResolvedConfig, spec: EnvSpec, seed: int, ticket: dict[str, Any]) -> Policy:
        """See `Inference.policy`."""
        from pronk.policies.central_policy import make_central_policy

        return make_central_policy(config, spec, seed, ticket)

    def start(self) -> None:
        """See `Inference.start`. Without actors there is nothing to serve."""
        if self._clients:
            self._process.start()

    def connect(self, actor: int) -> Start:
        """See `Inference.connect`. Every process of an actor gets the same mailbox and socket."""
        if self._setup.config.transport.name == "grpc":
            return Start({})  # the gateway has a ticket for it
        ticket, reader = self._clients[actor].ticket, self._setup.parameters
        job = {"mailbox": asdict(ticket), "reader": asdict(reader), "sizes": self._sizes()}
        return Start(job, [*ticket.descriptors, reader.parameters])

    def remote(self, actors: int) -> RemoteActing:
        """See `Inference.remote`. Every process of the gateway gets the same mailboxes and socket."""
        mailboxes = SharedMailboxes(self._layouts, actors)
        self._clients.append(mailboxes)
        job = {"ticket": asdict(mailboxes.ticket), "layouts": self._layouts.plain()}
        return RemoteActing(Start(job, mailboxes.ticket.descriptors), {"sizes": self._sizes()})

    def watch(self) -> None:
        """See `Inference.watch`."""
        if not self._clients:
            return
        for message in self._process.poll():
            if isinstance(message, Served):
                if self._life != self._process.lives:
                    self._life, self._serving_since = self._process.lives, time.monotonic()
                    self._answered_before = self._answered
                self._answered = self._answered_before + message.observations

    def serving_seconds(self) -> float:
        """See `Inference.serving_seconds`: since the server first reported in this life."""
        is_serving = self._process.process is not None and self._life == self._process.lives
        return time.monotonic() - self._serving_since if is_serving else 0.0

    def _sizes(self) -> dict[str, Any] | None:
        """Return the sizes of state and parameters, all that an actor needs of the network.

        None if it makes the network itself, to sample by the network's own code.
        """
        from pronk.networks import has_plain_distribution  # torch: the actors need not import it

        if not has_plain_distribution(self._setup.config.network):
            return None
        return {"state": Layout(self._state_spec).plain(), "nbytes": self._setup.parameters.nbytes}

    def _silent_seconds(self) -> float:
        """Return the seconds since the server last reported. Its start may take START_SECONDS more."""
        return self._process.silent_seconds(START_SECONDS)

    def _prepare(self, life: int) -> Start:
        reader, tickets = self._setup.parameters, [client.server_ticket for client in self._clients]
        job = {
            "config": self._setup.config.to_yaml(),
            "layout": self._setup.layout.digest,
            "reader": asdict(reader),
            "clients": [asdict(ticket) for ticket in tickets],
        }
        return Start(job, [reader.parameters, *(number for ticket in tickets for number in ticket.descriptors)])


class SharedMailboxes:
    """What the learner keeps of the mailboxes of a client: their memory, and both ends of their socket."""

    def __init__(self, layouts: RequestLayouts, count: int) -> None:
        memory = anonymous_memory(Mailboxes.nbytes(layouts, count))
        self._ends = socket.socketpair()
        self.ticket, self.server_ticket = (MailboxTicket(memory, count, end.fileno()) for end in self._ends)

    def close(self) -> None:
        """Close them. The memory is freed when no process uses it."""
        os.close(self.ticket.memory)
        for end in self._ends:
            end.close()


def unbatched(spec: ArraySpec, axes: int) -> ArraySpec:
    """Return a spec without its leading axes."""
    return ArraySpec(spec.shape[axes:], spec.dtype, spec.categories, spec.words)
