import io
import math
import shutil

import pytest
import torch

from pronk import device
from pronk.config import Config
from pronk.device import BFLOAT16_PROBE, probe
from pronk.layout import UnrollLayout
from pronk.learner import Learner, NonFinite
from pronk.losses import make_loss
from pronk.losses.corrections import CORRECTIONS
from pronk.networks import make_network
from pronk.parameters import ParameterBlock
from pronk.types import ActionSpec, ArraySpec, EnvSpec, UserError, map_unroll, unroll_specs

T, B, RATE = 5, 3, 0.02
CPU = torch.device("cpu")
SPEC = EnvSpec(ArraySpec((4,), "float32"), ActionSpec((), (3,)))
MASKED = EnvSpec({"seen": ArraySpec((4,), "float32"), "action_mask": ArraySpec((3,), "int8")}, SPEC.action)
PICTURES = EnvSpec(ArraySpec((4, 20, 20), "uint8"), SPEC.action)
PRECISIONS = ("float32", "bfloat16")
IMAGES = {"network.torso": "small"}
LSTM = {"network.core": "lstm", "network.core_size": 6}
DIES_OF_SIGILL = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"


def configured(**changes):
    small = {
        "network.hidden": [8],
        "optimiser.max_gradient_norm": None,
        "loss.discount": 0.99,
        "loss.entropy_cost": 0.01,
        "loss.barrier_cost": 0.003,
        "loss.max_kl": None,
        "learner.threads": 1,
    }
    return Config().replace(small | {name.replace("__", "."): value for name, value in changes.items()})


def learner_of(config, spec=SPEC):
    return Learner(config, spec, CPU)


def batch_for(learner, seed=0, length=T, columns=B):
    """A random batch of the learner's own layout: off-policy, with ends of episodes and invalid steps."""
    generator = torch.Generator().manual_seed(seed)
    layout = UnrollLayout(unroll_specs(learner.network.spec, learner.network.state_spec, length, columns))
    batch = map_unroll(torch.from_numpy, layout.allocate())

    def filled(array, often=0.5):
        if array.dtype == torch.bool:
            return array.copy_(torch.rand(array.shape, generator=generator) < often)
        return array.copy_(torch.randn(array.shape, generator=generator))

    map_unroll(lambda array: filled(array) if array.is_floating_point() else array, batch)
    batch.action.copy_(torch.randint(3, batch.action.shape, generator=generator))
    batch.log_prob.copy_(-batch.log_prob.abs())
    batch.discount.copy_(torch.rand(batch.discount.shape, generator=generator) < 0.8)
    filled(batch.first, 0.2)
    filled(batch.valid, 0.9)
    return batch


def step(learner, batch, rate=RATE):
    return learner.step(batch, rate, meanwhile=lambda: None)


def weights_of(learner):
    return torch.cat([weight.detach().flatten() for weight in learner.network.parameters()])


def bits(state):
    """Everything in a learner's state as bytes, in an order of its own."""
    parts = {**state["network"], **state["optimiser"], "random": state["random"]}
    return state["version"], {name: tensor.numpy().tobytes() for name, tensor in parts.items()}


def plain_gradient(config, learner, batch):
    """The gradient by autograd over a separate copy of the network, as one vector."""
    network = make_network(learner.network.spec, config.network)
    network.load_state_dict(learner.network.state_dict())
    output = network(batch.observation, batch.first, batch.state)
    distribution = network.distribution(output.policy[:-1], batch.observation[:-1])
    make_loss(config.loss)(distribution, network.value(output.value, batch.task), batch).total.backward()
    return torch.cat([weight.grad.flatten() for weight in network.parameters()])


@pytest.mark.parametrize("share", [None, 0.25, 4.0])
@pytest.mark.parametrize("core", [{}, LSTM])
def test_the_gradient_is_clipped_by_its_global_norm(share, core):
    # With decay 1 the mean square stays 1, so that rmsprop_tf is plain descent by rate / sqrt(1 + epsilon).
    plain_descent = {"optimiser.name": "rmsprop_tf", "optimiser.decay": 1.0, "optimiser.epsilon": 3.0}
    config = configured(**plain_descent, **core)
    learner = learner_of(config)
    batch = batch_for(learner)
    gradient = plain_gradient(config, learner, batch)
    norm = math.sqrt(sum(x * x for x in gradient.tolist()))
    limit = None if share is None else share * norm
    learner = learner_of(config.replace({"optimiser.max_gradient_norm": limit}))
    before = weights_of(learner)
    report = step(learner, batch)
    assert report["gradient_norm"] == pytest.approx(norm, rel=1e-5), "reported before clipping"
    scale = 0.25 if share == 0.25 else 1.0
    torch.testing.assert_close(weights_of(learner) - before, -RATE / 2 * scale * gradient, atol=1e-7, rtol=1e-4)


def test_each_step_forgets_the_gradient_of_the_last():
    config = configured(optimiser__name="rmsprop_tf", optimiser__decay=1.0)
    learner = learner_of(config)
    step(learner, batch_for(learner, 1))
    gradient = plain_gradient(config, learner, batch_for(learner, 2))
    report = step(learner, batch_for(learner, 2))
    assert report["gradient_norm"] == pytest.approx(gradient.norm().item(), rel=1e-5)


def test_a_step_calls_meanwhile_once_counts_and_reports():
    learner, calls = learner_of(configured()), []
    report = learner.step(batch_for(learner), RATE, meanwhile=lambda: calls.append(learner.version))
    assert calls == [0]
    assert learner.version == learner.parameters().version == 1
    assert {"loss", "gradient_norm", "policy_loss", "baseline_loss", "entropy"} <= report.keys()
    assert all(math.isfinite(value) for value in report.values())


@pytest.mark.parametrize("name", ["adam", "rmsprop", "rmsprop_tf"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("observation", math.nan),
        ("observation", -math.inf),
        ("reward", math.nan),
        ("reward", -math.inf),
        ("log_prob", math.nan),
    ],
)
def test_a_broken_batch_raises_and_leaves_weights_and_optimiser_untouched(name, field, value):
    config = configured(optimiser__name=name, optimiser__max_gradient_norm=1.0)
    learner, untroubled = learner_of(config), learner_of(config)
    for each in (learner, untroubled):
        step(each, batch_for(each, 1))
    broken = batch_for(learner, 2)
    broken.valid[2, 1] = True
    getattr(broken, field)[2, 1] = value
    before = bits(learner.state())
    with pytest.raises(NonFinite, match="after 1 updates") as caught:
        step(learner, broken)
    assert caught.value.batch is broken
    assert bits(learner.state()) == before
    for each in (learner, untroubled):
        step(each, batch_for(each, 3))
    assert bits(learner.state()) == bits(untroubled.state())


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("log_prob", [-50.0, -200.0, -math.inf])
def test_actions_that_were_all_but_impossible_do_not_break_an_unclipped_loss(correction, log_prob):
    unclipped = {"loss.rho_bar": None, "loss.c_bar": None, "loss.pg_rho_bar": None}
    learner = learner_of(
        configured(**unclipped, loss__name="impala", loss__correction=correction, optimiser__max_gradient_norm=0.5)
    )
    batch = batch_for(learner)
    batch.valid[:] = True
    batch.log_prob[1:4] = log_prob
    step(learner, batch)
    assert learner.is_finite()


@pytest.mark.parametrize("also", [{}, LSTM, {"loss.target_updates": 2}])
@pytest.mark.parametrize("name", ["adam", "rmsprop", "rmsprop_tf"])
def test_a_restored_learner_goes_on_bit_for_bit(name, also):
    config = configured(**also, optimiser__name=name, optimiser__momentum=0.5)
    learner, other = learner_of(config), learner_of(config.replace({"run.seed": 2}))
    assert not torch.equal(weights_of(learner), weights_of(other))
    for seed in range(3):
        step(learner, batch_for(learner, seed))
    file = io.BytesIO()
    torch.save(learner.state(), file)
    drawn = torch.rand(3)
    file.seek(0)
    other.load_state(torch.load(file, weights_only=True))
    assert torch.equal(torch.rand(3), drawn), "the random numbers go on too"
    for seed in range(3, 6):
        reports = [step(each, batch_for(each, seed)) for each in (learner, other)]
        assert reports[0] == reports[1]
        assert bits(learner.state()) == bits(other.state())
    assert learner.parameters().block.tobytes() == other.parameters().block.tobytes()


def test_the_target_network_stands_still_between_its_updates():
    learner = learner_of(configured(**LSTM, loss__target_updates=3))
    published = []
    for seed in range(7):
        published.append(torch.from_numpy(learner.parameters().block.copy()))
        step(learner, batch_for(learner, seed))
        target = make_network(SPEC, configured(**LSTM).network)
        ParameterBlock(target).load(published[seed - seed % 3])
        batch = batch_for(learner, seed)
        policy, _ = target.policy(batch.observation[:-1], batch.first[:-1], batch.state)
        torch.testing.assert_close(
            learner.loss.target_log_prob, target.distribution(policy, batch.observation[:-1]).log_prob(batch.action)
        )


def test_a_run_may_get_a_target_network_on_resume():
    learner = learner_of(configured())
    step(learner, batch_for(learner, 0))
    resumed = learner_of(configured(loss__target_updates=5))
    resumed.load_state(learner.state())
    resumed.gradient(batch_for(resumed, 1), lambda: None)
    torch.testing.assert_close(learner.tensors()[0], resumed.tensors()[1])


def test_state_is_a_snapshot_that_later_steps_do_not_touch():
    learner = learner_of(configured())
    step(learner, batch_for(learner, 0))
    saved = learner.state()
    before = bits(saved)
    step(learner, batch_for(learner, 1))
    ahead = bits(learner.state())
    assert bits(saved) == before != ahead
    learner.load_state(saved)
    step(learner, batch_for(learner, 1))
    assert bits(learner.state()) == ahead
    assert bits(saved) == before


@pytest.mark.parametrize("change", [{"network.hidden": [9]}, LSTM, {"optimiser.name": "rmsprop"}])
def test_the_state_of_another_configuration_is_a_users_mistake(change):
    state = learner_of(configured()).state()
    with pytest.raises(UserError, match="does not fit"):
        learner_of(configured(**change)).load_state(state)


def test_optimiser_settings_may_change_on_resume():
    def moved(config):
        learner = learner_of(config)
        learner.load_state(state)
        before = weights_of(learner)
        step(learner, batch_for(learner))
        return (weights_of(learner) - before).abs().max()

    state = learner_of(configured()).state()
    assert moved(configured(optimiser__epsilon=1e3)) < 0.1 * moved(configured())


def test_the_seed_decides_the_first_weights():
    one, same, other = (weights_of(learner_of(configured(run__seed=seed))) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_published_parameters_are_the_weights():
    config = configured(**LSTM)
    learner = learner_of(config)
    step(learner, batch_for(learner))
    published = learner.parameters()
    network = make_network(SPEC, config.network)
    ParameterBlock(network).load(torch.from_numpy(published.block.copy()))
    for ours, theirs in zip(network.parameters(), learner.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_learner_honours_the_mask_of_each_step():
    learner = learner_of(configured(), MASKED)
    batch = batch_for(learner)
    allowed = torch.tensor([1, 2, 3, 2, 1])
    batch.observation["action_mask"][:T] = (torch.arange(3) < allowed.view(T, 1, 1)).to(torch.int8)
    batch.action.zero_()
    batch.valid[:] = True
    report = step(learner, batch, 0.0)
    expected = (0 + math.log(2) + math.log(3) + math.log(2) + 0) / 5
    assert report["entropy"] == pytest.approx(expected, abs=1e-3), "nearly uniform over what is allowed"


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_contextual_bandit_is_learnt(correction):
    learner = learner_of(configured(loss__name="impala", loss__correction=correction, loss__entropy_cost=0.0))
    batch = batch_for(learner, columns=32)
    batch.valid[:] = True
    batch.discount.zero_()
    for update in range(150):
        torch.manual_seed(update)
        batch.observation.copy_(torch.randn(batch.observation.shape))
        with torch.no_grad():
            policy, _ = learner.network.policy(batch.observation[:-1], batch.first[:-1], batch.state)
            distribution = learner.network.distribution(policy, batch.observation)
            batch.action.copy_(distribution.sample())
            batch.log_prob.copy_(distribution.log_prob(batch.action))
        batch.reward.copy_(batch.action == batch.observation[:-1, :, :3].argmax(-1))
        step(learner, batch)
    assert batch.reward.mean() > 0.85


@pytest.fixture
def bfloat16():
    problem = probe(BFLOAT16_PROBE)
    if problem is not None:
        pytest.skip(f"bfloat16 does not work on this CPU: the test program {problem}")


@pytest.mark.parametrize("also", [LSTM, {"network.value": "hl_gauss"}])
def test_several_threads_learn_the_same(also):
    """With statistics that follow the data, too."""
    also = {"network.normalise": True, "network.popart": "hl_gauss" not in also.values(), **IMAGES, **also}
    one, two = (learner_of(configured(learner__threads=threads, **also), PICTURES) for threads in (1, 2))
    for seed in range(5):
        batch = batch_for(one, seed)
        batch.observation.copy_(torch.randint(256, batch.observation.shape, generator=torch.manual_seed(seed)))
        assert step(two, batch) == pytest.approx(step(one, batch), rel=1e-4, abs=1e-5)
    torch.testing.assert_close(weights_of(two), weights_of(one), atol=1e-4, rtol=1e-4)


def test_several_threads_notice_a_broken_batch_before_the_weights_change():
    learner = learner_of(configured(learner__threads=2, **IMAGES), PICTURES)
    batch = batch_for(learner)
    batch.reward[0, 0] = math.nan
    before = weights_of(learner)
    with pytest.raises(NonFinite):
        step(learner, batch)
    torch.testing.assert_close(weights_of(learner), before, atol=0, rtol=0)


def test_threads_share_columns_where_that_pays_and_otherwise_torchs_operations():
    config = configured(learner__threads=2, **IMAGES)
    assert learner_of(config, PICTURES).threads == 1
    assert learner_of(configured(learner__threads=2)).threads == 2, "no convolutions"
    for change in ({"transport.name": "local", "actors.count": 1}, {"learner.compile": True}):
        assert learner_of(config.replace(change), PICTURES).threads == 2


@pytest.mark.usefixtures("bfloat16")
def test_bfloat16_learns_nearly_the_same_with_weights_in_float32():
    exact, rough = (learner_of(configured(learner__precision=name, **IMAGES), PICTURES) for name in PRECISIONS)
    batch = batch_for(exact)
    batch.observation.copy_(torch.randint(256, batch.observation.shape, generator=torch.Generator().manual_seed(0)))
    reports = [step(learner, batch) for learner in (exact, rough)]
    assert reports[1]["loss"] == pytest.approx(reports[0]["loss"], rel=0.03, abs=0.03)
    assert reports[1] != reports[0]
    assert {weight.dtype for weight in rough.network.parameters()} == {torch.float32}


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("core", [{}, LSTM])
def test_bfloat16_leaves_values_around_80_as_exact_as_float32(core):
    """bfloat16 has steps of 0.5 at 80, so the baseline loss below would be 0 instead of about 1e-5."""
    losses = []
    for precision in PRECISIONS:
        learner = learner_of(configured(learner__precision=precision, **core))
        with torch.no_grad():
            weights = dict(learner.network.named_parameters())
            weights["_value_head._linear.weight"].mul_(0.02 / weights["_value_head._linear.weight"].norm())
            weights["_value_head._linear.bias"].fill_(80.0)
        batch = batch_for(learner)
        batch.valid[:], batch.discount[:], batch.reward[:] = True, 0.0, 80.0  # so the target of every step is 80
        losses.append(step(learner, batch)["baseline_loss"])
    assert 1e-6 < losses[0] < 1e-2
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_bfloat16_is_refused_where_it_would_kill_the_process(monkeypatch):
    monkeypatch.setattr(device, "BFLOAT16_PROBE", DIES_OF_SIGILL)
    with pytest.raises(UserError, match=r"was killed by SIGILL.*learner\.precision=float32"):
        learner_of(configured(learner__precision="bfloat16"))
    learner_of(configured(learner__precision="float32"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_network_learns_the_same():
    plain, fused = learner_of(configured()), learner_of(configured(learner__compile=True))
    batch = batch_for(plain)
    assert step(fused, batch) == pytest.approx(step(plain, batch), rel=1e-4, abs=1e-6)
    torch.testing.assert_close(weights_of(plain), weights_of(fused))
