"""Central inference: which requests a batch joins, and that no server, actor or state is mistaken for another."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from actors import actor_setup
from processes import command_line
from served import PATIENCE, central, duplicated, make_server, ticket_of

from pronk.actor import specs_for
from pronk.actors import ActorSetup
from pronk.actors.gateway import GatewayProcess
from pronk.actors.processes import inference_for
from pronk.config import Config, ResolvedConfig, resolve
from pronk.layout import UnrollLayout
from pronk.networks import Network, make_network
from pronk.parameters import ParameterBlock
from pronk.policies import Inference, InferenceSetup, check_inference
from pronk.policies.central import CentralInference
from pronk.policies.central_policy import CentralPolicy, make_central_policy
from pronk.policies.central_process import Server
from pronk.policies.network_sampler import NetworkSampler
from pronk.transport import Closed
from pronk.transport.mailboxes import Mailboxes, MailboxTicket, RequestLayouts
from pronk.transport.shared_memory import SharedMemoryReader, SharedMemoryTransport
from pronk.types import ActionSpec, ArraySpec, EnvSpec, Parameters, UserError, leaves, map_tree

ACTORS, N = 4, 3
SPEC = EnvSpec(ArraySpec((5,), "float32"), ActionSpec((), (3,)))
ALL_FIRST, NONE_FIRST = np.ones(N, bool), np.zeros(N, bool)


class Central:
    """The learner's half, with a network whose every weight matters."""

    def __init__(self, stack: contextlib.ExitStack, logs: Path, **settings: Any) -> None:
        changes = {
            "actors.count": ACTORS,
            "actors.envs": N,
            "actors.inference": "central",
            "actors.central": settings,
            "learner.batch_size": N,
            "network.hidden": [8],
            "network.core": "lstm",
            "network.core_size": 4,
        }
        self.config = resolve(Config().replace(changes))
        self.network = self.make_network()
        with torch.no_grad():
            for weight in self.network.parameters():
                weight.normal_()
        block = ParameterBlock(self.network)
        layout = UnrollLayout(specs_for(self.config, SPEC, self.network.state_spec))
        self.transport = stack.enter_context(SharedMemoryTransport(layout, block.nbytes, actors=0, slots=1))
        self.transport.publish(Parameters(0, block.bytes()))
        setup = InferenceSetup(self.config, layout, None, self.transport.reader(), logs, pytest.fail)
        self.inference = stack.enter_context(CentralInference(setup))
        layouts = RequestLayouts.of(SPEC, self.network.state_spec, N)
        tickets = [duplicated(self.inference.connect(actor).job["mailbox"]) for actor in range(ACTORS)]
        self.clients = [Mailboxes(MailboxTicket(**ticket), layouts) for ticket in tickets]
        self.mailboxes = [client[0] for client in self.clients]
        for client in self.clients:
            client.players = 1

    def make_network(self) -> Network:
        return make_network(SPEC, self.config.network)

    def server(self) -> Server:
        return make_server(self.inference, self.config, self.make_network())

    def policy(self, actor: int = 0, seed: int = 1) -> CentralPolicy:
        return make_central_policy(self.config, SPEC, seed, ticket_of(self.inference, actor))

    def ask(self, actor: int) -> int:
        """Ask as a policy does, but do not wait. Returns the number of the request."""
        mailbox, generator = self.mailboxes[actor], np.random.default_rng(actor)
        mailbox.observation[...] = generator.normal(size=mailbox.observation.shape)
        number = mailbox.requested + 1
        mailbox.request(number)
        self.clients[actor].ring()
        return number

    def unanswered(self) -> list[int]:
        return [actor for actor, mailbox in enumerate(self.mailboxes) if mailbox.requested != mailbox.answered]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        yield lambda **settings: Central(stack, tmp_path, **settings)


def test_a_batch_joins_all_that_ask(made: Any) -> None:
    one = made()
    server = one.server()
    for actors in ([2], [0, 1, 2, 3], [1, 3]):
        before = server.observations
        for actor in actors:
            one.ask(actor)
        server.step(PATIENCE)
        assert server.observations - before == N * len(actors)
        assert one.unanswered() == []
    assert server.batches == 3
    server.step(0.0)
    assert server.batches == 3, "nobody asks"


def test_no_batch_is_larger_than_the_maximum_and_who_asked_first_is_served_first(made: Any) -> None:
    one = made(max_batch=2 * N + 1)
    server = one.server()
    one.ask(3)
    server._listen(PATIENCE)
    for actor in range(3):
        one.ask(actor)
    server._listen(PATIENCE)
    server.step(PATIENCE)
    assert one.unanswered() == [1, 2]
    server.step(PATIENCE)
    assert one.unanswered() == []
    assert (server.batches, server.observations) == (2, 4 * N)


def test_a_maximum_below_one_actor_takes_one_actor_at_a_time(made: Any) -> None:
    one = made(max_batch=1)
    server = one.server()
    for actor in range(ACTORS):
        one.ask(actor)
    for left in (3, 2, 1, 0):
        server.step(PATIENCE)
        assert len(one.unanswered()) == left


def test_the_server_waits_for_the_minimum_but_not_for_ever(made: Any) -> None:
    one = made(min_batch=2 * N, wait_seconds=PATIENCE)
    server = one.server()
    one.ask(0)
    later = threading.Timer(0.2, one.ask, [1])
    later.start()
    began = time.monotonic()
    server.step(PATIENCE)
    assert 0.1 < time.monotonic() - began < PATIENCE / 2, "it went on as soon as there were enough"
    assert (server.batches, server.observations) == (1, 2 * N)

    one = made(min_batch=10**6, wait_seconds=0.3)
    server = one.server()
    one.ask(0)
    began = time.monotonic()
    server.step(PATIENCE)
    assert time.monotonic() - began >= 0.3
    assert server.observations == N


def test_a_minimum_above_all_actors_is_reached_when_all_have_asked(made: Any) -> None:
    one = made(min_batch=10**6, wait_seconds=PATIENCE)
    server = one.server()
    for actor in range(ACTORS):
        one.ask(actor)
    began = time.monotonic()
    server.step(PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    assert server.observations == ACTORS * N


def test_everyone_in_a_batch_gets_the_answer_to_his_own_request(made: Any) -> None:
    one = made()
    numbers = [one.ask(actor) for actor in range(ACTORS)]
    one.server().step(PATIENCE)
    for mailbox, number in zip(one.mailboxes, numbers, strict=True):
        seen = torch.from_numpy(mailbox.observation).unsqueeze(0)
        with torch.no_grad():
            output = one.network(seen, torch.from_numpy(mailbox.first).unsqueeze(0), one.network.initial_state(N))
        np.testing.assert_allclose(mailbox.policy, output.policy[0], rtol=1e-4, atol=1e-5)
        for (_, ours), (_, theirs) in zip(leaves(mailbox.state_before(number + 1)), leaves(output.state), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert len({mailbox.policy.tobytes() for mailbox in one.mailboxes}) == ACTORS


def test_a_server_answers_what_a_killed_one_had_read_and_not_answered(made: Any) -> None:
    one = made()
    killed = one.server()
    one.ask(1)
    one.ask(2)
    killed._listen(PATIENCE)  # the bells are gone
    following = one.server()
    following._take_over()
    following.step(0.0)
    assert one.unanswered() == []
    assert following.observations == 2 * N


def test_an_actor_wakes_whose_server_was_killed_between_answer_and_bell(made: Any) -> None:
    one = made()
    acted = threading.Event()
    policy = one.policy()

    def act() -> None:
        policy.act(np.zeros((N, 5), np.float32), ALL_FIRST)
        acted.set()

    threading.Thread(target=act, daemon=True).start()
    killed = one.server()
    killed._listen(PATIENCE)
    time.sleep(0.2)  # by then the actor sleeps: it looks for an answer once more before it does
    one.mailboxes[0].answer(one.mailboxes[0].requested)
    assert not acted.wait(0.2)
    one.server()._take_over()
    assert acted.wait(PATIENCE)


def test_an_answer_does_not_depend_on_how_often_it_was_begun(made: Any) -> None:
    """A killed server may have written half of the state after a request."""
    one = made()
    for _ in range(3):
        number = one.ask(0)
        mailbox = one.mailboxes[0]
        one.server().step(PATIENCE)
        policy, state = mailbox.policy.copy(), map_tree(np.copy, mailbox.state_before(number + 1))
        map_tree(lambda array: array.fill(np.nan), mailbox.state_before(number + 1))
        mailbox.answer(number - 1)
        following = one.server()
        following._take_over()
        following.step(0.0)
        np.testing.assert_array_equal(policy, mailbox.policy)
        map_tree(np.testing.assert_array_equal, state, mailbox.state_before(number + 1))
        assert all(array.any() for _, array in leaves(state))


def test_a_new_process_of_an_actor_starts_afresh_while_the_server_answers_the_old_one(made: Any) -> None:
    one = made()
    for _ in range(4):  # for both halves of the state
        one.ask(0)
        one.server().step(PATIENCE)  # a state other than zero
        one.ask(0)
        server = one.server()
        server._listen(PATIENCE)
        policy = one.policy()  # before the server has answered its predecessor
        server.step(PATIENCE)
        assert one.mailboxes[0].answered == one.mailboxes[0].requested
        map_tree(lambda array: np.testing.assert_array_equal(array, 0), policy.state)
        policy.close()


def test_versions_are_never_newer_than_what_acts(made: Any) -> None:
    """Nor older than what had been published when they were read, however seldom actors would fetch parameters."""
    one = made()
    policy, server = one.policy(), one.server()
    reader = SharedMemoryReader(one.transport.reader())
    for version in (5, 9):
        acted_with = server._version
        assert policy.version <= version
        one.transport.publish(Parameters(version, reader.parameters().block))
        assert policy.version == version > acted_with
        one.ask(0)
        server.step(PATIENCE)
        assert server._version == version


def test_actors_act_for_long_while_servers_are_replaced(made: Any) -> None:
    """Servers that stop at any instant, in threads: the state of the core never skips or repeats a step."""
    one = made()
    policies = [one.policy(actor, seed=actor) for actor in range(ACTORS)]
    failures: list[BaseException] = []

    def play(policy: CentralPolicy, actor: int) -> None:
        generator = np.random.default_rng(actor)
        state = one.network.initial_state(N)
        try:
            for step in range(200):
                first = ALL_FIRST if step % 17 == 0 else NONE_FIRST
                seen = generator.normal(size=(N, 5)).astype(np.float32)
                action, log_prob = policy.act(seen, first)
                with torch.no_grad():
                    tensor = torch.from_numpy(seen).unsqueeze(0)
                    logits, state = one.network.policy(tensor, torch.from_numpy(first).unsqueeze(0), state)
                    expected = one.network.distribution(logits, tensor).log_prob(torch.from_numpy(action).unsqueeze(0))
                np.testing.assert_allclose(log_prob, expected[0], rtol=1e-3, atol=1e-4)
        except BaseException as error:
            failures.append(error)

    players = [
        threading.Thread(target=play, args=pair, daemon=True) for pair in zip(policies, range(ACTORS), strict=True)
    ]
    for player in players:
        player.start()
    deadline = time.monotonic() + 3 * PATIENCE
    while any(player.is_alive() for player in players) and time.monotonic() < deadline:
        with central(one.inference, one.config, one.make_network()):
            time.sleep(0.05)
    for player in players:
        player.join(1.0)
        assert not player.is_alive()
    assert failures == []


def test_an_actor_gets_closed_when_the_learner_is_gone(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        policy = Central(stack, tmp_path).policy()
    with pytest.raises(Closed):
        policy.act(np.zeros((N, 5), np.float32), ALL_FIRST)


def test_a_distribution_that_needs_weights_is_an_error_in_the_actor() -> None:
    class Needy(Network):
        def __init__(self) -> None:
            super().__init__(SPEC)
            self.scale = torch.nn.Parameter(torch.ones(1))

        def distribution(self, policy: Any, observation: Any) -> Any:
            return super().distribution(policy * self.scale, observation)

    sampler = NetworkSampler(Needy(), 1)
    with pytest.raises((RuntimeError, NotImplementedError)):
        sampler.sample(np.zeros((N, 3), np.float32), np.zeros((N, 5), np.float32))


def test_one_process_alone_will_not_do() -> None:
    with pytest.raises(UserError, match="central needs transport=shared_memory or grpc, got transport=local"):
        check_inference(resolve(Config().replace({"actors.inference": "central", "transport.name": "local"})))


class AtTheActors(Inference):
    """Has no `remote`."""


class Anywhere(Inference):
    def remote(self, actors: int) -> None:
        return None


@pytest.mark.parametrize(
    ("inference", "transport", "is_refused"),
    [
        ("AtTheActors", "grpc", True),
        ("AtTheActors", "shared_memory", False),
        ("Anywhere", "grpc", False),
    ],
)
def test_a_way_of_your_own_that_grpc_would_ignore_is_refused(
    inference: str, transport: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "my_ways", sys.modules[__name__])
    config = resolve(Config().replace({"actors.inference": f"my_ways:{inference}", "transport.name": transport}))
    message = "actors.inference=my_ways:AtTheActors has no `remote`, which transport=grpc needs"
    with pytest.raises(UserError, match=message) if is_refused else contextlib.nullcontext():
        check_inference(config)


def test_an_unknown_way_is_one_line_with_the_nearest_choice(tmp_path: Path) -> None:
    ended = command_line("train", "catch", "actors.inference=centrl", "--run-dir", tmp_path / "run")
    assert ended.code == 2
    [line] = ended.err.strip().splitlines()
    assert "actors.inference" in line
    assert "did you mean 'central'?" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("inference", "acts_there"), [("local", True), ("central", False)])
def test_what_actors_of_other_machines_are_told(inference: str, acts_there: bool, tmp_path: Path) -> None:
    setup = actor_setup(
        tmp_path / "run", "catch", f"actors.inference={inference}", "gateway.address=127.0.0.1:0", say=pytest.fail
    )
    port = SharedMemoryTransport(setup.layout, setup.parameters.block.nbytes, actors=1, slots=1)
    with inference_for(setup, port) as learners_half, port:
        acting = learners_half.remote(2)
        assert (acting is None) == acts_there
        gateway = GatewayProcess(setup, port, 1, 2, acting)
        welcome = gateway._job({}, 0)["rules"]["welcome"]
        assert ResolvedConfig.from_yaml(welcome["config"]).actors.inference == inference
        assert (welcome["acting"] is None) == acts_there
    assert ResolvedConfig.from_yaml(own_way(setup)["config"]).actors.inference == "local"


def own_way(setup: ActorSetup) -> dict[str, Any]:
    """The welcome where actors of this machine have a way of their own."""
    changed = replace(setup, config=setup.config.replace({"actors.inference": "module:attribute"}))
    return GatewayProcess(changed, None, 1, 1)._job({}, 0)["rules"]["welcome"]  # type: ignore[arg-type]
