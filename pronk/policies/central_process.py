"""What the inference server's process runs; `central.py` starts it, and has the drawing."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Sequence
from typing import Any

import torch

from pronk.config import ResolvedConfig
from pronk.config.knobs import CentralConfig
from pronk.networks import Network
from pronk.parameters import ParameterBlock
from pronk.processes.channel import Channel, ChannelClosed
from pronk.processes.messages import Served
from pronk.transport.base import ParameterReader
from pronk.transport.mailboxes import Mailboxes, MailboxTicket, RequestLayouts
from pronk.transport.memory import fence
from pronk.transport.shared_memory import ReaderTicket, SharedMemoryReader
from pronk.types import Tree, UserError, map_tree

REPORT_SECONDS = 1.0  # between reports to the learner
LOG_SECONDS = 60.0


def main(job: dict[str, Any], channel: Channel) -> None:
    """Serve until the learner closes the channel."""
    from pronk.actor import specs_for
    from pronk.device import choose_device
    from pronk.envs import probe_spec
    from pronk.layout import UnrollLayout
    from pronk.networks import make_network
    from pronk.processes.freed_memory import keep_freed_memory

    config = ResolvedConfig.from_yaml(job["config"])
    torch.set_num_threads(config.actors.central.threads)
    keep_freed_memory()
    spec = probe_spec(config)
    network = make_network(spec, config.network)
    if UnrollLayout(specs_for(config, spec, network.state_spec)).digest != job["layout"]:
        raise UserError("the environment or the network is not the one that the run was started with")
    layouts = RequestLayouts.of(spec, network.state_spec, config.actors.envs)
    clients = [Mailboxes(MailboxTicket(**ticket), layouts) for ticket in job["clients"]]
    reader = SharedMemoryReader(ReaderTicket(**job["reader"]))
    device = choose_device(config.learner.device, config.rank_here)
    Server(network.to(device), reader, clients, config.actors.envs, config.actors.central).serve(channel)


class Server:
    """Answers the requests of several actors in batches."""

    def __init__(
        self,
        network: Network,
        reader: ParameterReader,
        clients: Sequence[Mailboxes],
        envs: int,
        settings: CentralConfig,
    ) -> None:
        """A request is about `envs` observations. The network is on the device to act on."""
        self._network, self._block, self._reader = network.eval(), ParameterBlock(network), reader
        self._device = self._block.weights.device
        self._version = -1
        self._clients, self._settings = clients, settings
        self._most = max(1, settings.max_batch // envs)  # requests
        self._fewest = -(-settings.min_batch // envs)
        self._waiting: dict[tuple[int, int], None] = {}  # open requests, oldest first: client and mailbox of each
        self.batches = self.observations = 0
        self._selector = selectors.DefaultSelector()
        for number, client in enumerate(clients):
            client.socket.setblocking(False)
            self._selector.register(client.socket, selectors.EVENT_READ, number)

    def serve(self, channel: Channel) -> None:
        """Answer until the other side closes the channel."""
        self._selector.register(channel, selectors.EVENT_READ, None)
        self._take_over()
        reported = logged = float("-inf")
        with contextlib.suppress(ChannelClosed):
            while True:
                now = time.monotonic()
                if now - reported >= REPORT_SECONDS:
                    channel.receive()
                    channel.send(Served(self.batches, self.observations))
                    reported = now
                if now - logged >= LOG_SECONDS:
                    self._log()
                    logged = now
                self.step(REPORT_SECONDS)
        self._log()

    def step(self, seconds: float) -> None:
        """Answer one batch, if a request comes within so many seconds."""
        if not self._waiting:
            self._listen(seconds)
        if not self._waiting:
            return
        deadline = time.monotonic() + self._settings.wait_seconds
        while self._has_too_few() and (left := deadline - time.monotonic()) > 0:
            self._listen(left)
        batch = list(self._waiting)[: self._most]
        for request in batch:
            del self._waiting[request]
        self._answer(batch)

    def _has_too_few(self) -> bool:
        """Return whether to wait for more requests, because some actors have none open yet."""
        if len(self._waiting) >= self._fewest:
            return False
        return len(self._waiting) < sum(client.players for client in self._clients)

    def _take_over(self) -> None:
        """Check every mailbox: an earlier server may have been killed before it answered, or before it could ring."""
        for number, client in enumerate(self._clients):
            self._note(number)
            client.ring()

    def _listen(self, seconds: float) -> None:
        """Note the requests that come within so many seconds. Also returns when the channel has a message."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                key.fileobj.receive()  # type: ignore[union-attr]  # raises ChannelClosed
                continue
            self._clients[key.data].drain()
            self._note(key.data)

    def _note(self, number: int) -> None:
        for mailbox in self._clients[number].unanswered():
            self._waiting.setdefault((number, mailbox))

    @torch.inference_mode()
    def _answer(self, requests: list[tuple[int, int]]) -> None:
        # Parameters are read after the requests: they are at least as new as those that each actor saw published before
        # it asked (`CentralPolicy.refresh`).
        mailboxes = [self._clients[number][mailbox] for number, mailbox in requests]
        numbers = [mailbox.requested for mailbox in mailboxes]
        fence()
        self._load_newest()
        before = [mailbox.state_before(number) for mailbox, number in zip(mailboxes, numbers, strict=True)]
        observation = self._joined([mailbox.observation for mailbox in mailboxes])
        first = self._joined([mailbox.first for mailbox in mailboxes])
        timed = map_tree(lambda tensor: tensor.unsqueeze(0), observation)  # T = 1
        policy, state = self._network.policy(timed, first.unsqueeze(0), self._joined(before))
        after = [mailbox.state_before(number + 1) for mailbox, number in zip(mailboxes, numbers, strict=True)]
        divide(policy[0], [mailbox.policy for mailbox in mailboxes])
        divide(state, after)
        for mailbox, number in zip(mailboxes, numbers, strict=True):
            mailbox.answer(number)
        for client in {number for number, _ in requests}:
            self._clients[client].ring()
        self.batches += 1
        self.observations += len(first)

    def _load_newest(self) -> None:
        parameters = self._reader.parameters()
        if parameters.version != self._version:
            self._block.load(torch.from_numpy(parameters.block))
            self._version = parameters.version

    def _joined(self, trees: Sequence[Tree]) -> Tree:
        """[N, ...] arrays of several actors -> [B, ...] tensors on the device."""
        return map_tree(lambda *arrays: torch.cat([*map(torch.from_numpy, arrays)]).to(self._device), *trees)

    def _log(self) -> None:
        mean = self.observations / max(1, self.batches)
        print(f"{time.strftime('%F %T')} {self.batches:,} batches, {mean:.1f} observations each", flush=True)


def divide(tree: Tree, targets: Sequence[Tree]) -> None:
    """Copy [B, ...] tensors into the [N, ...] arrays of each actor, one after another."""

    def copy(tensor: torch.Tensor, *arrays: Any) -> None:
        for array, part in zip(arrays, tensor.cpu().split([len(array) for array in arrays]), strict=True):
            torch.from_numpy(array).copy_(part)

    map_tree(copy, tree, *targets)
