"""Central inference: one server beside the learner acts for all of its actors, in batches (SEED RL, arXiv 1910.06591).

    actor                    mailbox (shared memory)            server (`central_process.py`)
    CentralPolicy --writes-> observation, first, `requested` --> network(batch of several mailboxes)
        samples  <--reads--  policy, state, `answered`       <-- writes
                 <====== one socket: a byte means "check the mailbox" ======>

Parameters go from the learner's memory straight to the server. The server computes the parameters of each action's
distribution, and the actor samples from it. So the server has neither random numbers nor a memory of its own: all that
it needs is in the mailboxes, and a server that was killed at any instant is replaced by one that reads them. The
learner keeps both ends of every socket open, so neither side gets an error when the other dies. An actor notices only
a pause.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from pronk.config import ResolvedConfig
from pronk.layout import Layout
from pronk.networks import Network, make_network
from pronk.networks.distributions import parameter_count
from pronk.parameters import block_nbytes
from pronk.policies.base import Inference, InferenceSetup
from pronk.processes.messages import Served
from pronk.processes.restarts import RestartPolicy
from pronk.processes.supervisor import Child, Start, SupervisedProcess
from pronk.transport.base import Closed, ParameterReader
from pronk.transport.memory import anonymous_memory, fence, map_memory
from pronk.transport.shared_memory import ReaderTicket, SharedMemoryReader
from pronk.types import ActionSpec, Array, ArraySpec, EnvSpec, Tree, UserError, map_tree

START_SECONDS = 60.0  # for the server to begin, on a busy machine
GRACE_SECONDS = 2.0  # for the server to finish its batch when the run ends
STEADY_SECONDS = 60.0
BELL = b"!"
BELLS = 4096  # bytes to receive at once: takes all that wait


def mailbox_layout(observation: Tree, action: ActionSpec, state: Tree, envs: int) -> Layout:
    """Return the layout of a mailbox, from specs without leading axes."""
    states = map_tree(lambda leaf: leaf.batched(envs), state)
    return Layout(
        {
            "requested": ArraySpec((1,), "int64"),
            "answered": ArraySpec((1,), "int64"),
            "observation": map_tree(lambda leaf: leaf.batched(envs), observation),
            "first": ArraySpec((envs,), "bool"),
            "policy": ArraySpec((envs, parameter_count(action)), "float32"),
            "states": {"0": states, "1": states},
        }
    )


class Mailbox:
    """The memory between one actor and the server.

    Requests are numbered. Request k reads the core's state from half k % 2 and writes the next one to the other half.
    So it can be answered a second time, by another server, with the same result.
    """

    def __init__(self, descriptor: int, layout: Layout) -> None:
        arrays = layout.view(map_memory(descriptor))
        self.observation: Tree = arrays["observation"]  # [N, ...]
        self.first: np.ndarray = arrays["first"]  # [N]
        self.policy: np.ndarray = arrays["policy"]  # [N, P]
        self._states = [arrays["states"]["0"], arrays["states"]["1"]]
        self._requested, self._answered = arrays["requested"], arrays["answered"]

    @property
    def requested(self) -> int:
        """Number of the newest request."""
        return int(self._requested[0])

    @property
    def answered(self) -> int:
        """Number of the request that was answered last."""
        return int(self._answered[0])

    def request(self, number: int) -> None:
        """Mark the observations as complete."""
        fence()
        self._requested[0] = number

    def answer(self, number: int) -> None:
        """Mark the answer as complete."""
        fence()
        self._answered[0] = number

    def state_before(self, number: int) -> Tree:
        """Return views [N, ...] of the core's state that a request starts from."""
        return self._states[number % 2]


class CentralPolicy:
    """See `Policy`. Asks the server for distributions, and samples."""

    def __init__(self, network: Network, count: int, seed: int, ticket: dict[str, Any]) -> None:
        spec, self.state_spec, self.nbytes = network.spec, network.state_spec, block_nbytes(network)
        # Frees the weights. If a user's `distribution` needs them, it fails at once instead of returning wrong values.
        self._network = network.to("meta")
        layout = mailbox_layout(spec.observation, spec.action, network.state_spec, count)
        self._mailbox = Mailbox(ticket["mailbox"], layout)
        self._published = SharedMemoryReader(ReaderTicket(**ticket["reader"]))
        self._socket: socket.socket | None = socket.socket(fileno=ticket["socket"])
        self._generator = torch.Generator().manual_seed(seed)
        # The server may still be answering the last request k of a killed process of this actor, and will write the
        # next state to half (k + 1) % 2. Skipping a number makes the first request here start from the other half.
        self._number = self._mailbox.requested + 1
        map_tree(lambda array: array.fill(0), self._mailbox.state_before(self._number + 1))
        self.version = -1

    @property
    def state(self) -> Tree:
        """See `Policy.state`."""
        return map_tree(np.copy, self._mailbox.state_before(self._number + 1))

    def refresh(self, reader: ParameterReader) -> None:
        """See `Policy.refresh`. The server reads the parameters after each request, so it never uses older ones."""
        self.version = self._published.version

    @torch.inference_mode()
    def act(self, observation: Tree, first: Array) -> tuple[np.ndarray, np.ndarray]:
        """See `Policy.act`."""
        map_tree(np.copyto, self._mailbox.observation, observation)
        np.copyto(self._mailbox.first, first)
        self._number += 1
        self._mailbox.request(self._number)
        self._wait_for_answer()
        policy = torch.from_numpy(self._mailbox.policy).unsqueeze(0)
        timed = map_tree(lambda array: torch.from_numpy(array).unsqueeze(0), observation)  # T = 1
        distribution = self._network.distribution(policy, timed)
        action = distribution.sample(self._generator)
        return action[0].numpy(), distribution.log_prob(action)[0].numpy()

    def close(self) -> None:
        """See `Policy.close`."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _wait_for_answer(self) -> None:
        assert self._socket is not None, "it is closed"
        try:
            self._socket.sendall(BELL)
            while self._mailbox.answered != self._number:
                if not self._socket.recv(BELLS):
                    raise Closed
        except ConnectionError as error:
            raise Closed from error
        fence()


class CentralInference(Inference):
    """The learner's half: the mailboxes, and the server, a supervised process."""

    def __init__(self, setup: InferenceSetup) -> None:
        super().__init__(setup)
        specs, settings = setup.layout.specs, setup.config.actors
        layout = mailbox_layout(
            map_tree(lambda leaf: unbatched(leaf, 2), specs["observation"]),
            ActionSpec(specs["action"].shape[2:], specs["action"].categories),
            map_tree(lambda leaf: unbatched(leaf, 1), specs["state"]),
            settings.envs,
        )
        self._mailboxes = [anonymous_memory(layout.nbytes) for _ in range(settings.count)]
        self._sockets = [socket.socketpair() for _ in range(settings.count)]  # the actor's end, the server's
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
        for descriptor in self._mailboxes:
            os.close(descriptor)
        for pair in self._sockets:
            for end in pair:
                end.close()

    @staticmethod
    def check(config: ResolvedConfig) -> None:
        """See `Inference.check`."""
        if config.transport.name != "shared_memory":
            raise UserError(
                f"actors.inference=central needs transport=shared_memory, got transport={config.transport.name}: the "
                "server and the learner's own actors share memory"
            )

    @staticmethod
    def policy(config: ResolvedConfig, spec: EnvSpec, seed: int, ticket: dict[str, Any]) -> CentralPolicy:
        """See `Inference.policy`."""
        return CentralPolicy(make_network(spec, config.network), config.actors.envs, seed, ticket)

    def start(self) -> None:
        """See `Inference.start`. Without actors of the learner's own there is nothing to serve."""
        if self._mailboxes:
            self._process.start()

    def connect(self, actor: int) -> Start:
        """See `Inference.connect`. Every process of an actor gets the same mailbox and socket."""
        mailbox, end, reader = self._mailboxes[actor], self._sockets[actor][0].fileno(), self._setup.parameters
        ticket = {"mailbox": mailbox, "socket": end, "reader": asdict(reader)}
        return Start(ticket, [mailbox, end, reader.parameters])

    def watch(self) -> None:
        """See `Inference.watch`."""
        if not self._mailboxes:
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

    def _silent_seconds(self) -> float:
        """Return the seconds since the server last reported. Its start may take START_SECONDS more."""
        return self._process.silent_seconds(START_SECONDS)

    def _prepare(self, life: int) -> Start:
        reader, ends = self._setup.parameters, [pair[1].fileno() for pair in self._sockets]
        job = {
            "config": self._setup.config.to_yaml(),
            "layout": self._setup.layout.digest,
            "reader": asdict(reader),
            "mailboxes": self._mailboxes,
            "sockets": ends,
        }
        return Start(job, [reader.parameters, *self._mailboxes, *ends])


def unbatched(spec: ArraySpec, axes: int) -> ArraySpec:
    """Return a spec without its leading axes."""
    return ArraySpec(spec.shape[axes:], spec.dtype, spec.categories, spec.words)
