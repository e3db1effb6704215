"""The knobs of an experiment: what is learnt, how, and for how long. `host.py` has those of a machine.

Each docstring says what the knob means, its unit, and where its default comes from. "Table G.1" and "table D.3" are
those of the IMPALA paper (arXiv 1802.01561); defaults without a source were chosen on CartPole, Catch and Pong.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from pronk.config.section import (
    NAME_OR_KEYS,
    Auto,
    Chain,
    Envs,
    Fraction,
    Kwargs,
    Names,
    NonNegative,
    Positive,
    PositiveFloat,
    Schedule,
    Section,
    Seed,
    Threads,
    as_tasks,
    tasks_label,
)


class AtariConfig(Section):
    """Preprocessing of Atari games. Defaults are those of table G.1."""

    backend: Literal["ale", "envpool"] = "ale"
    """What emulates the games: ale-py's vector environment, or EnvPool (`pip install 'pronk[envpool]'`). Observations,
    rewards and actions are the same; only the first frames of a game differ (the order of no-ops and fire, and what the
    frame stack starts with)."""
    frame_skip: Positive = 4
    """Emulator frames per step of the agent. The last two are max-pooled, because some sprites flicker."""
    stack: Positive = 4
    """Frames in one observation."""
    size: Positive = 84
    """Height and width of a frame in pixels."""
    grayscale: bool = True
    """One channel per frame instead of red, green and blue."""
    noops: Annotated[int, Field(ge=0)] = 30
    """Each game begins with a random number of no-op frames, up to this many, so that games differ."""
    sticky: Fraction = 0.0
    """Probability that the emulator repeats the previous action instead of the chosen one (Machado et al. 2018 use
    0.25)."""
    full_actions: bool = False
    """Offer all 18 actions, not only those that the game uses."""
    life_loss_ends: bool = True
    """End the episode when a life is lost, for learning only: the game continues, and reported returns are of whole
    games."""
    fire_reset: bool = True
    """Press fire for the agent at the start of a game, and of each further life: some games wait for it, and a policy
    that plays its likeliest action would wait for ever."""
    max_frames: Positive = 108_000
    """Emulator frames after which a game is truncated (30 minutes at 60 frames per second)."""


class TaskConfig(Section):
    """One of several tasks. What it does not set is as in the section `env`."""

    name: str | None = None
    """What it is called in metrics and evaluations. null: its game or id."""
    id: str | None = None
    """As `env.id`."""
    game: str | None = None
    """As `env.game`."""
    kwargs: Kwargs = {}
    """As `env.kwargs`, on top of these."""
    wrappers: Chain | None = None
    """As `env.wrappers`, instead of these."""


class EnvConfig(Section):
    """The environment."""

    id: str = "CartPole-v1"
    """A Gymnasium id, a built-in (`catch`, `atari`), or `module:attribute` of your own class, function or vector
    class."""
    game: str | None = None
    """The Atari game, such as `pong` or `ms_pacman`. Required with id=atari."""
    atari: AtariConfig = AtariConfig()
    kwargs: Kwargs = {}
    """Keyword arguments for the environment's constructor."""
    wrappers: Chain = [{"auto": None}]
    """What is done to each environment before the agent sees it, innermost first: `[grayscale, {resize: 84}, {stack:
    4}]`. Names: `resize`, `grayscale`, `stack`, `skip`, `keys`, `flatten`, `normalise`, `clip`, `pad`, `time_limit`, or
    `module:Wrapper` of any Gymnasium wrapper. `auto` resizes images of more than 100 pixels a side to 84x84; `[]`
    leaves everything as it is. See docs/environments.md."""
    info: Names = []
    """Numbers in the environment's `info` that become metrics: `env.info=[success]` adds `info/success`, the mean over
    the steps whose info has it. For a number of each episode, give it in the info of the last step only."""
    vectorization: Literal["auto", "native", "sync", "async"] = "auto"
    """How an actor steps its environments: `native` with the environment's own vector class, `sync` one after another
    in the actor process, `async` with one process each. `auto`: native if there is one, else sync."""
    tasks: Annotated[
        list[TaskConfig], BeforeValidator(as_tasks), WithJsonSchema({"type": "array", "items": NAME_OR_KEYS})
    ] = []
    """Several environments for one set of weights, dealt evenly over the environments of all actors. Each is an id, or
    keys that replace those of this section: `[ALE/Pong-v5, {name: hard, id: MyEnv-v0, kwargs: {level: 9}}]`. They must
    have the same observations and actions; Atari games have all 18 actions. Empty: one task, `env.id`."""
    task_observed: bool = False
    """With env.tasks: let the network see which task it plays, as the entry `task` of the observation (a label)."""

    @model_validator(mode="after")
    def _check_names_of_tasks(self) -> EnvConfig:
        names = self.task_names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two tasks are called {name!r}; give them names: {{name: ..., id: {name}, ...}}")
        if self.task_observed and not self.tasks:
            raise ValueError("task_observed=true needs env.tasks")
        return self

    @property
    def each_task(self) -> list[EnvConfig]:
        """The settings of every task, as if it were the only one; those of this section if there are no tasks."""
        return [self._settings_of(task) for task in self.tasks] or [self]

    @property
    def task_names(self) -> tuple[str, ...]:
        """One for each task; none if there are no tasks."""
        return tuple(task.name or settings.label for task, settings in zip(self.tasks, self.each_task, strict=False))

    @property
    def label(self) -> str:
        """What is played, in a few words."""
        if not self.tasks:
            return self.game or self.id
        return tasks_label(self.task_names[0], len(self.tasks))

    def _settings_of(self, task: TaskConfig) -> EnvConfig:
        own = {
            "id": task.id or ("atari" if task.game else self.id),
            "game": task.game or (None if task.id else self.game),
            "kwargs": {**self.kwargs, **task.kwargs},
            "wrappers": self.wrappers if task.wrappers is None else task.wrappers,
        }
        return self.model_copy(update={**own, "tasks": [], "task_observed": False})


class NetworkConfig(Section):
    """The network: observation -> policy and value."""

    name: str = "actor_critic"
    """`actor_critic`, or `module:attribute` of your own network (see docs/architecture.md)."""
    torso: Literal["auto", "mlp", "shallow", "nature", "deep", "opt_cnn", "compact", "small", "codes"] = "auto"
    """What turns an observation into features. `auto`: each entry gets the encoder that its shape calls for, and they
    are joined. `mlp` for vectors. For images: `shallow` and `deep` from the IMPALA paper, `nature` from DQN, `opt_cnn`
    from XingTian, `compact` for 42x42 frames, `small` for grids of a few cells (MinAtar), `codes` for grids whose bytes
    are names of things (MiniGrid)."""
    standardise: bool | Auto = "auto"
    """Shift and scale each image to mean 0 and standard deviation 1. Most of an Atari frame is background, so without
    this a small ball hardly changes the sums, and Pong takes several times as long. `auto`: true with torso=auto, of
    images but not of codes."""
    pooling: Literal["none", "average"] = "none"
    """`average`: the mean over the picture of each feature of the last convolution, instead of all of them (Impoola,
    arXiv 2503.05546). The layer after it is far smaller, and does not know where in the picture something was."""
    layer_norm: bool | Auto = "auto"
    """Normalise the features of every hidden layer before their activation (LayerNorm). `auto`: true for images of more
    than 20 pixels a side."""
    hidden: list[Positive] = [64, 64]
    """Widths of the hidden layers of the `mlp` torso, and of `auto` for all that is not an image."""
    activation: Literal["relu", "tanh"] = "tanh"
    """Activation function of these layers."""
    separate_value: bool | Auto = "auto"
    """Give policy and value a torso each, so that a large value loss does not disturb the policy. Actors then compute
    the policy half only. `auto`: true where there is no core, no image and no text."""
    core: Literal["none", "lstm", "gru", "attention"] = "none"
    """Memory between torso and heads, for environments where one observation does not show everything: `lstm` as in
    the paper, `gru`, which is smaller, or `attention`, a transformer block over the last few observations."""
    core_size: Positive = 256
    """Units of the core. Paper: 256."""
    core_window: Annotated[int, Field(ge=2, le=1024)] = 16
    """Observations that the `attention` core sees, the newest included. Unrolls carry the ones before them along."""
    normalise: bool | Auto = "auto"
    """Shift and scale every number of an observation to a running mean of 0 and standard deviation of 1. Images of
    bytes and class labels stay as they are. `auto`: true."""
    popart: bool | Auto = "auto"
    """Learn values, and the policy from advantages, in a running scale of their own (PopArt), so that rewards of any
    size are learnt alike. `auto`: true."""
    value: Literal["scalar", "hl_gauss"] = "scalar"
    """How a value is represented. `hl_gauss`: as a histogram of 101 bins, learnt by classification (arXiv 2403.03950),
    in a running scale as with popart=true, whatever popart says."""
    last_action: bool = False
    """Also feed the previous action to the network, one-hot. The paper does so with the LSTM."""
    last_reward: bool = False
    """Also feed the previous reward, clipped to [-1, 1]. The paper does so with the LSTM."""
    kwargs: Kwargs = {}
    """Any values for a network of your own, which finds them in `config.kwargs`."""


class LossConfig(Section):
    """The loss: off-policy data -> gradient."""

    name: str = "appo"
    """`impala`: the paper's. `appo`: PPO's clipped surrogate with V-trace targets, which learns more from each step if
    learner.passes is more than 1. Or `module:attribute` of your own loss."""
    correction: Literal["vtrace", "one_step", "epsilon", "none"] = "vtrace"
    """How the lag between actors and learner is corrected for. The others are the variants that the paper compares with
    V-trace (section 5.2.2); `one_step` and `epsilon` with name=impala only."""
    rho_bar: PositiveFloat | None = 1.0
    """Upper limit of the importance weight of each TD error. It decides which value function is learnt: the limit of 1
    (paper) lies between the acting policy's and the learner's. null: no limit below 1e9, the learner's."""
    c_bar: PositiveFloat | None = 1.0
    """Upper limit of the weights in the trace. It decides how fast values are learnt, not which. At most rho_bar.
    Paper: 1. null: no limit."""
    pg_rho_bar: PositiveFloat | None = 1.0
    """With name=impala: upper limit of the importance weight of the policy gradient. Paper: 1. null: no limit."""
    lambda_: Fraction = 0.95
    """Decay of the trace per step, as in TD(lambda) (remark 2 of the paper). Less than 1: less variance, more bias.
    Paper: 1."""
    clip: PositiveFloat = 0.2
    """With name=appo: how far the ratio of new to old policy may move from 1 before a step stops teaching. PPO: 0.2."""
    max_kl: PositiveFloat | Auto | None = "auto"
    """With name=appo: the learning rate falls while the policy is further than this from the policies that acted (mean
    KL divergence of a batch, in nats), and recovers after. The more precise a policy gets, the further the same step
    moves it. `auto`: 0.02 for real-valued actions, off for choices. None: off."""
    target_updates: Annotated[int, Field(ge=0)] = 0
    """With name=appo: clip against a target network, a copy that is renewed after so many updates, instead of against
    the policies that acted (IMPACT). Worth a try with replay or a large lag. 0: no target network."""
    upgo_cost: NonNegative = 0.0
    """Weight of the policy gradient of UPGO beside the other one: it follows an episode only as long as it goes better
    than expected, so what went well is learnt from at once. AlphaStar: 1. 0: off."""
    discount: Fraction | Auto = "auto"
    """Discount factor per step. `auto`: 0.99 as in table G.1; less if a time limit ends every episode after fewer than
    100 steps (0.98 for 50), since nothing corrects the values of what would come after it."""
    baseline_cost: NonNegative = 0.5
    """Weight of the value loss. Table G.1: 0.5."""
    entropy_cost: NonNegative | Auto = "auto"
    """Weight of the entropy bonus, which keeps the policy from settling too early. `auto`: 0.01 for choices, 0.002 for
    real-valued actions, whose entropy can grow without end. Table G.1: 0.01."""
    barrier_cost: NonNegative | Auto = "auto"
    """Weight of a log barrier, KL(uniform || policy), which keeps the options of a choice from dying out: the gradients
    of the policy and of the entropy vanish with an option's probability, this one does not (pronk/losses/exploring.py).
    `auto`: 0.003 with name=appo, 0 with the paper's loss. No effect on real-valued actions. 0: off."""
    entropy_schedule: Schedule | Auto = "auto"
    """How entropy_cost and barrier_cost change: as optimiser.schedule. A falling one explores first and is precise
    later. `auto`: late with name=appo, constant with the paper's loss."""
    reduction: Literal["mean", "sum"] = "mean"
    """Average or sum the loss over time and batch. The paper sums. A learning rate for one does not suit the other."""
    reward_clip: Literal["none", "abs_one", "soft_asymmetric"] = "none"
    """Clip rewards for learning: `abs_one` to [-1, 1] (Atari, table G.1); `soft_asymmetric` to 0.3 min(tanh r, 0) + 5
    max(tanh r, 0) (DMLab-30). Reported returns are never clipped."""
    reward_scale: PositiveFloat = 1.0
    """Multiply rewards by this before clipping, for learning only. Useful if returns are far from the order of 1 to
    10."""
    clone: str | None = None
    """A Minari dataset, such as `pronk record` writes: before the first update, the policy learns to act as its
    episodes do. Needs `pip install 'pronk[minari]'`. null: start from scratch."""
    kwargs: Kwargs = {}
    """Any values for a loss of your own, which finds them in `config.kwargs`."""

    @model_validator(mode="after")
    def _check_correction_is_used(self) -> LossConfig:
        if self.name == "appo" and self.correction in ("one_step", "epsilon"):
            raise ValueError(f"correction={self.correction} needs name=impala: with appo it would be the same as none")
        return self

    @model_validator(mode="after")
    def _check_target_is_used(self) -> LossConfig:
        if self.target_updates and self.name == "impala":
            raise ValueError("target_updates needs name=appo: the paper's loss has no target network")
        return self

    @model_validator(mode="after")
    def _check_rho_is_at_least_c(self) -> LossConfig:
        rho, c = (float("inf") if bar is None else bar for bar in (self.rho_bar, self.c_bar))
        if rho < c:
            raise ValueError(f"rho_bar ({rho:g}) must be at least c_bar ({c:g}): V-trace's proof needs it")
        return self


class OptimiserConfig(Section):
    """The optimiser: gradient -> new weights."""

    name: Literal["adam", "rmsprop", "rmsprop_tf"] = "adam"
    """`rmsprop` is PyTorch's: g / (sqrt(v) + epsilon). `rmsprop_tf` is TensorFlow's, as in the paper's code: g / sqrt(v
    + epsilon), with v starting at 1. Learning rates and epsilons for one do not suit the other."""
    learning_rate: PositiveFloat | Auto = "auto"
    """Step size at the start. Table G.1: 6e-4, with rmsprop_tf and loss.reduction=sum. `auto`: 5e-4 for images of
    more than 20 pixels a side, else 1e-3."""
    schedule: Schedule = "linear"
    """How the learning rate changes: `constant`; `linear` or `cosine` to zero at the end of the run, which is
    run.total_steps or run.total_seconds, whichever comes first (table G.1: linear); `late`, constant and then linear to
    zero in the last 30% of the run; or points `[[steps, factor], ...]`, such as `[[0, 1], [1e6, 1], [2e6, 0.1]]`, with
    straight lines between them."""
    epsilon: PositiveFloat = 1e-5
    """Keeps the division by sqrt(v) finite. Table G.1: 0.01, with rmsprop_tf."""
    decay: Fraction = 0.99
    """Decay of RMSProp's running mean of squared gradients, per update. Table G.1: 0.99."""
    momentum: Fraction = 0.0
    """Momentum of RMSProp. Table G.1: 0."""
    bias_correction: bool = False
    """Correct v of `rmsprop` for its start at 0, as Adam does. Without it the first updates are up to 1 / sqrt(1 -
    decay) times too large: ten times, with a decay of 0.99."""
    weight_decay: NonNegative = 0.0
    """Shrink every weight by learning_rate times this at each update, apart from the gradient (as AdamW). 0: off."""
    max_gradient_norm: PositiveFloat | None = 0.5
    """Scale the gradient down to this global norm if it is larger. Table G.1: 40, with loss.reduction=sum. null:
    never."""


class CentralConfig(Section):
    """How the server of actors.inference=central collects observations. It acts on whole requests of actors."""

    min_batch: Positive = 1
    """Wait for so many observations, or as many as all actors together have. 1: act at once on all that have come; what
    comes meanwhile is the next batch."""
    max_batch: Positive = 1024
    """Act on no more observations than this at a time, but on those of one actor at least."""
    wait_seconds: NonNegative = 0.01
    """Longest wait for min_batch, in seconds, from its first observation on. It is needed because actors that wait for
    the learner send no observations."""
    threads: Threads = 1
    """Threads of torch in the server, where it acts on the CPU."""


class ActorsConfig(Section):
    """The actors, which play."""

    count: Annotated[int, Field(ge=0, le=10_000)] | Auto = "auto"
    """Actor processes, of all learners together; each learner has at least one. `auto`: one per core. 0: only actors of
    other machines play (gateway.address)."""
    envs: Envs | Auto = "auto"
    """Environments per actor. `auto`: 8 for images of more than 20 pixels, 16 for smaller ones, else 32, or
    learner.batch_size if that does not fit; down to 4 if steps or resets are so slow that the first unroll would take
    more than 5 seconds."""
    unroll_length: Annotated[int, Field(gt=0, le=100_000)] | Auto = "auto"
    """Steps per unroll. Table G.1: 20; table D.3: 100. `auto`: 64 for images of more than 20 pixels, else
    128, or down to 32 if 4 environments still take more than 5 seconds for it."""
    slots: Annotated[int, Field(ge=1, le=64)] | Auto = "auto"
    """Unrolls that an actor may be ahead of the learner. Limits memory and policy lag; with 1 an actor waits until the
    learner has taken its unroll. `auto`: 2, or 1 where learner.passes and learner.batch_size are `auto`, too, and no
    network is in between: the learner then has something to do meanwhile."""
    sync_every: Positive = 1
    """Fetch new parameters before every so many unrolls. More than 1 saves network traffic and adds lag. Paper: 1. Has
    no effect with actors.inference=central, where actors fetch none."""
    inference: str = "local"
    """Where actions are chosen. `local`: in each actor, with its own copy of the network. `central`: in a process
    beside the learner, for all of its actors together, on the learner's GPU if it has one (SEED RL, arXiv 1910.06591).
    Actors of other machines then send their observations at every step, and need neither parameters nor torch; not with
    transport=local. Or `module:attribute` of your own, for the learner's own actors; those of other machines then
    choose by themselves, unless it has a `remote`, which it needs with transport=grpc."""
    central: CentralConfig = CentralConfig()
    threads: Threads = 1
    """Threads of torch in each actor process. More than 1 rarely helps: actors are many and their batches small."""
    on_error: Literal["restart", "stop"] = "restart"
    """When an environment raises an exception: `restart` that actor, or `stop` the run."""
    max_failures: Positive = 3
    """The run ends, with the cause, when one actor has failed this many times in a row."""
    timeout_seconds: PositiveFloat = 120.0
    """An actor that delivers no unroll for this long, although it could, is killed and restarted. So is one of several
    learners that sends no message for this long: it must be longer than an update."""


class LearnerConfig(Section):
    """The learner."""

    batch_size: Annotated[int, Field(gt=0, le=1_000_000)] | Auto = "auto"
    """Columns per update (trajectories of actors.unroll_length steps), of all learners together. Each learner's share
    is a multiple or a divisor of actors.envs. Table G.1: 32. `auto`: 4 for each learner, or the nearest that fits."""
    passes: Annotated[int, Field(gt=0, le=100)] | Literal["idle"] | Auto = "auto"
    """Times that each batch is learnt from. More than 1 learns more from each step and adds lag. Paper: 1. `idle`:
    again while the learner would otherwise wait for the actors, up to 8 times. `auto`: with
    loss.name=appo 8, and 3 for images; else `idle`."""
    extra_lag: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Updates by which the actors' parameters are held back on purpose, on top of the lag that there is anyway: to
    study corrections at a known policy lag. Costs memory for so many copies of the parameters. 0: off."""
    device: str = "auto"
    """A torch device such as `cpu` or `cuda:1`. `auto`: the first GPU (with several learners, a GPU each), else the
    CPU."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products and convolutions in the learner. `bfloat16` is for GPUs that support it; weights,
    loss and actors stay in float32."""
    compile: bool = False
    """Compile the learner's network with torch.compile. For GPUs: it takes a minute, and gains nothing on a CPU."""
    threads: Threads | Auto = "auto"
    """Threads on the CPU. Each computes a share of the batch's columns; without convolutions, or with transport=local,
    they share each of torch's operations. `auto`: the cores that the actors leave free, at least 1; all cores with
    network.torso=deep."""
    on_nan: Literal["stop", "skip"] = "stop"
    """What to do with a batch whose loss or gradient is NaN or infinite. Its update is never made. `stop`: end the run,
    with the cause. `skip`: drop the batch and continue. Either way the (first) batch is saved for `pronk debug RUN`."""
    max_skipped: Positive = 10
    """With on_nan=skip: batches in a row that may be dropped; one more ends the run."""
    timeout_seconds: PositiveFloat | None = 3600.0
    """A learner that makes no progress for this long, because a loss, a sink or a disk hangs, prints its stack and ends
    the run with exit code 1; the last checkpoint is kept. It must be longer than an update and than writing a
    checkpoint. Time in a debugger, and while the process is stopped, does not count. A program that calls `pronk.train`
    is not ended: there, as with null, the stack is only reported (after actors.timeout_seconds). null: never."""


class ReplayConfig(Section):
    """Replay: columns that were learnt from before, drawn again into later batches. Off by default."""

    size: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Columns kept (trajectories of actors.unroll_length steps), the newest of all learners together, in the memory of
    their machines. Each learner has its share, from its own actors. Paper: 10,000. 0: no replay."""
    fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of each batch that is replayed. These columns come on top of learner.batch_size, which counts fresh ones.
    With loss.reduction=sum the gradient grows by them. Paper: 0.5."""
    sampling: Literal["uniform", "prioritised"] = "uniform"
    """`uniform`: every column alike, as in the paper. `prioritised`: in proportion to the mean absolute TD error of its
    steps when it was last learnt from. The bias of this choice is not corrected for."""
    keep: bool = False
    """Save the buffer with every checkpoint, so that a resumed run continues with it. It is as large on disk as in
    memory. false: a resumed run starts with an empty one."""
    trust_region: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    """Leave out steps of replayed columns at which the ratio of the present policy to the one that acted is not between
    1 / this and this, as LASER (arXiv 1909.11583) does with the KL divergence. The trace ends there. null: off."""
    clone_policy_cost: NonNegative = 0.0
    """Weight of -log pi(a) of the recorded actions, on replayed columns: keeps the policy near the one that acted
    (CLEAR, arXiv 1811.11682: 0.01). 0: off."""
    clone_value_cost: NonNegative = 0.0
    """Weight of the squared distance of each value from what it was when the column was fresh, on replayed columns, in
    the scale that values are learnt in (CLEAR: 0.005). With network.value=hl_gauss it is the distance between the
    histograms. 0: off."""


class LearnersConfig(Section):
    """Several learners that act as one: each has its own actors, and gradients are summed at every update."""

    count: Annotated[int, Field(gt=0, le=1024)] | Auto = "auto"
    """Learner processes. They share learner.batch_size and actors.count, so the result does not depend on how many
    there are. `auto`: WORLD_SIZE if torchrun or a similar launcher has set it, else 1."""
    rank: Annotated[int, Field(ge=0)] | None = None
    """Which learner this process is, from 0, if you start each yourself. null (default): RANK if torchrun has set it;
    else this is learner 0, and it starts the others on this machine."""
    address: str | None = None
    """HOST:PORT where learner 0 waits for the others, if you start each yourself. null (default): MASTER_ADDR and
    MASTER_PORT."""

    @model_validator(mode="after")
    def _check_rank_is_below_count(self) -> LearnersConfig:
        if self.rank is not None and self.count != "auto" and self.rank >= self.count:
            raise ValueError(f"rank ({self.rank}) must be below count ({self.count}): the first learner is 0")
        return self


class TransportConfig(Section):
    """How unrolls and parameters travel between actors and learner."""

    name: Literal["shared_memory", "local", "grpc"] = "shared_memory"
    """Between the learner and its own actors. `shared_memory`: actors are processes of this machine. `local`:
    everything in one process and one thread, deterministic bit for bit; for debugging. `grpc`: processes over this
    machine's network, as actors of other machines always do."""
    compression: Literal["none", "lz4", "zstd"] = "none"
    """Compression of unrolls on the network; needs `pip install 'pronk[compression]'` on both sides."""
    parameters_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Format of parameters on the network. 16 bits halve the traffic; the actors' policy then differs a little, which
    V-trace corrects for."""


class CheckpointConfig(Section):
    """Checkpoints of the whole state of a run."""

    every_seconds: PositiveFloat = 60.0
    """Seconds between checkpoints. One is always written at the end."""
    keep: Positive = 3
    """Newest checkpoints to keep, besides the best."""


class EvaluationConfig(Section):
    """Evaluation during training, in a process of its own, with the newest weights."""

    enabled: bool = False
    """Evaluate during training. `pronk train --evaluate` sets it."""
    every_seconds: PositiveFloat = 10.0
    """Seconds between the starts of two evaluations, or longer if one takes longer. Each begins with a checkpoint."""
    episodes: Positive = 20
    """Episodes per evaluation, of each task."""
    deterministic: bool = False
    """Take the most likely action instead of sampling."""
    seed: Seed = 1
    """Seed of the episodes. Every evaluation of a run plays the same ones, and neither training nor `pronk eval`
    does."""
    envs: Envs | Auto = "auto"
    """Environments that play the episodes side by side. `auto`: one per episode, at most 64."""
    final_seconds: NonNegative = 300.0
    """Longest wait, in seconds, for the evaluation of the last checkpoint when training has ended, and for the one that
    confirms run.stop_return."""


class RunConfig(Section):
    """When the run ends, and what it writes."""

    total_steps: Positive = 1_000_000
    """Environment steps to train for. In Atari a step is `env.atari.frame_skip` frames."""
    total_seconds: PositiveFloat | None = None
    """Seconds of training after which the run ends, summed over all resumes. null (default): no limit."""
    pause_steps: Positive | None = None
    """End for now at so many environment steps; schedules still go by total_steps. A resumed run forgets it. null
    (default): do not pause."""
    stop_return: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """End the run early when `episode_return` reaches this and is confirmed by 30 or more whole episodes of the weights
    as they are then, at least one of every environment. With env.tasks: the mean over the tasks, each with so many
    episodes. null (default): never."""
    seed: Seed = 1
    """Seed of everything random in the run."""
    log_every_seconds: PositiveFloat = 1.0
    """Seconds between two lines of metrics."""
    video: bool = False
    """Record an episode of the final policy: videos/final.mp4, or .gif without PyAV (`pip install 'pronk[video]'`)."""
    clip_every_steps: Positive | None = None
    """Record an episode of the policy every so many environment steps while training goes on, in a process of its own:
    videos/STEPS.mp4. The next one is not begun before the last is finished. null (default): off."""
    profile_seconds: NonNegative = 0.0
    """Profile the learner and actor 0 for so long, after a second of training: `profile/` in the run directory then has
    a table of where their time goes, and a trace of one more second for Perfetto (ui.perfetto.dev). 0: off."""
    sinks: Names = []
    """Where metrics go besides metrics.jsonl and TensorBoard: `wandb`, `mlflow` (`pip install 'pronk[wandb]'`), or
    `module:attribute` of your own."""
