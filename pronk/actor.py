"""The actor: environments + policy + port. It plays one unroll after another and sends each to the learner."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pronk.config import ResolvedConfig
from pronk.envs import VectorEnv, make_env
from pronk.layout import UnrollLayout
from pronk.policies import Policy, make_policy
from pronk.processes.profiling import Method
from pronk.seeding import actor_seeds
from pronk.transport import ActorPort, Closed
from pronk.types import Array, EnvSpec, Tree, Unroll, assign, leaves, map_tree, unroll_specs

NUMBERS_PER_LEARNER = 2**40  # environment numbers that are reserved for each learner


class Actor:
    """Plays N environments with one policy. An unroll starts where the last one ended."""

    def __init__(
        self,
        env: VectorEnv,
        policy: Policy,
        port: ActorPort,
        seeds: list[int],
        sync_every: int = 1,
        first_number: int = 0,
    ) -> None:
        """`first_number` is the number of the first environment; the others follow."""
        self._env, self._policy, self._port = env, policy, port
        self._sync_every, self._until_sync = sync_every, 0  # unrolls
        self._numbers = first_number + np.arange(env.count)
        self._now = env.reset(seeds)

    def run(self, after_unroll: Callable[[], None] = lambda: None) -> None:
        """Play until the learner closes the port."""
        try:
            while True:
                self.advance()
                after_unroll()
        except Closed:
            return

    def advance(self) -> None:
        """Play one unroll and send it."""
        with self._port.unroll() as unroll:
            if self._until_sync == 0:
                self._policy.refresh(self._port)
            self._play(unroll)
            check_finite(unroll)
            if self._env.spec.has_action_mask:
                check_masks(unroll, self._env.spec.action.choices)
        self._until_sync = (self._until_sync or self._sync_every) - 1

    def _play(self, unroll: Unroll) -> None:
        """Fill every field. The parameters change only between unrolls, so an unroll has one version."""
        unroll.version[:] = self._policy.version
        unroll.task[:] = self._env.task
        unroll.environment[:] = self._numbers
        map_tree(np.copyto, unroll.state, self._policy.state)
        self._observe(unroll, 0)
        for t in range(unroll.reward.shape[0]):
            observation = map_tree(lambda array, t=t: array[t], unroll.observation)
            unroll.action[t], unroll.log_prob[t] = self._policy.act(observation, unroll.first[t])
            self._now = self._env.step(unroll.action[t])
            unroll.reward[t] = self._now.reward
            unroll.discount[t] = self._now.discount
            unroll.valid[t] = self._now.valid
            unroll.episode_return[t] = self._now.episode_return
            unroll.episode_length[t] = self._now.episode_length
            assign(unroll.info, t, self._now.info)
            self._observe(unroll, t + 1)

    def _observe(self, unroll: Unroll, t: int) -> None:
        assign(unroll.observation, t, self._now.observation)
        unroll.first[t] = self._now.first

    def timed_methods(self) -> list[Method]:
        """Return what a profile times, by the parts of `parts_of_time.ACTOR`."""
        return [
            Method(self._env, "step", "environment"),
            Method(self._policy, "act", "inference"),
            Method(self._policy, "refresh", "loading parameters"),
            Method(self._port, "unroll", "waiting for a slot", until_entered=True),
            Method(self, "_play", "filling the unroll"),
            Method(__name__, "check_finite", "filling the unroll"),
        ]


def check_finite(unroll: Unroll) -> None:
    """Raise `FloatingPointError` for a NaN or infinity here, where its source is known, not later in the weights."""
    named: list[tuple[str, Array]] = [("reward", unroll.reward), *leaves(unroll.observation, "observation")]
    for name, array in named:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            t, environment = np.argwhere(~np.isfinite(array))[0][:2]
            value = np.asarray(array[t, environment]).reshape(-1)
            bad = value[~np.isfinite(value)][0]
            raise FloatingPointError(f"environment {environment} returned {bad} in its {name}")


def check_masks(unroll: Unroll, choices: tuple[int, ...]) -> None:
    """Raise ValueError if an environment forbade every option of a choice that had to be made.

    The policy would then choose among the forbidden options. After the last observation of an episode nothing is
    chosen: the step only resets, so it is not valid, and its mask may be all zeros.
    """
    starts = np.cumsum((0, *choices[:-1]))  # the masks of several choices lie one after another
    allowed = np.logical_or.reduceat(unroll.observation["action_mask"][:-1], starts, axis=-1).all(-1)
    stuck = np.argwhere(~allowed & unroll.valid)
    if stuck.size:
        raise ValueError(f"environment {stuck[0][1]} allows no action: its action_mask is all zeros")


def specs_for(config: ResolvedConfig, spec: EnvSpec, state_spec: Tree) -> Unroll:
    """Return the shape of one actor's unroll."""
    return unroll_specs(spec, state_spec, config.actors.unroll_length, config.actors.envs)


def first_dealt(config: ResolvedConfig, index: int) -> int:
    """Return the number by which the tasks of an actor are assigned: its first environment's, over all learners.

    There are no gaps, so tasks are spread evenly. (If learners have different numbers of actors, some numbers occur
    twice; the spread stays nearly even.)
    """
    return (config.rank * config.actors.count + index) * config.actors.envs


@contextlib.contextmanager
def make_actor(
    config: ResolvedConfig,
    make_port: Callable[[UnrollLayout, int], ActorPort],
    index: int,
    life: int,
    generation: int,
    ticket: dict[str, Any] | None = None,
) -> Iterator[Actor]:
    """Make an actor with its environments; leaving the block closes them.

    `make_port` gets the layout of the unrolls and the size of the parameters in bytes. Actor and learner each compute
    these from the configuration, so they are the same in every process and for every transport. `ticket` is what the
    policy needs from the learner's process (`Inference.connect`).
    """
    policy_seed, env_seeds = actor_seeds(config.run.seed, index, life, generation, config.actors.envs, config.rank)
    with contextlib.ExitStack() as stack:
        env = stack.enter_context(contextlib.closing(make_env(config, config.actors.envs, first_dealt(config, index))))
        policy = stack.enter_context(contextlib.closing(make_policy(config, env.spec, policy_seed, ticket or {})))
        port = make_port(UnrollLayout(specs_for(config, env.spec, policy.state_spec)), policy.nbytes)
        # Unique in the run, which `first_dealt` is not: metrics tell environments apart by it.
        first_number = config.rank * NUMBERS_PER_LEARNER + index * config.actors.envs
        yield Actor(env, policy, port, env_seeds, config.actors.sync_every, first_number)
