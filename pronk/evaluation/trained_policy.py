"""A trained policy for use elsewhere: the environment's own observations in, its own actions out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from pronk.config import ResolvedConfig
from pronk.config.named import import_extra
from pronk.envs import make_env
from pronk.envs.last_inputs import LastInputs, as_dict
from pronk.evaluation.playing import checkpoint_of, config_to_play, restored_network
from pronk.runs.directory import find_run
from pronk.types import Array, Tree, UserError, leaves, map_tree


class Decision(NamedTuple):
    """What a policy makes of an observation. Of N observations, every field has a leading axis of N."""

    action: Any
    """In the environment's own units, ready for `env.step`."""
    log_prob: Any
    """log pi(action | observation), a float or [N]; of real-valued actions it is a density, before clipping."""
    value: Any
    """V(observation), a float or [N], in the units of the (clipped or scaled, if so trained) return."""
    state: Tree
    """The core's state after the observation, for `decide(..., state=...)`; {} without a core."""


class TrainedPolicy:
    """The policy of a run, as `pronk.load` and `Trainer.policy` return it.

        policy = pronk.load("last")
        observation, _ = env.reset()
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            done = terminated or truncated
        policy.reset()  # before the next episode

    It takes one observation, or N with a leading axis, such as those of a vector environment. The state of a recurrent
    network is kept between calls, for each of the N.
    """

    def __init__(
        self, config: ResolvedConfig, state: dict[str, Any], deterministic: bool, seed: int, task: str | None = None
    ) -> None:
        self._env = make_env(config.replace({"env.vectorization": "auto"}), 1, task=task)
        self._env.close()  # only its translations between spaces and arrays are used
        self._network = restored_network(config, self._env.spec, state).eval()
        self._deterministic = deterministic
        self._generator = torch.Generator().manual_seed(seed)
        self._count, self._first = 0, np.ones(0, bool)  # observations at a time; those that open an episode
        self._state: Tree = {}
        self._action: Array = np.zeros(0)  # the last

    def reset(self, which: Any = None) -> None:
        """Say that the next observation opens an episode: all of them, or of N those where `which` [N] is True."""
        if which is None:
            self._count = 0  # known when the next observation comes
        elif self._count:
            self._first = self._first | np.asarray(which, bool)

    def act(self, observation: Any, reward: Any = 0.0) -> Any:
        """Return the action for one observation, or the actions for N of them.

        Args:
            observation: of the environment, or N of them with a leading axis.
            reward: of the last action, a number or [N]; for networks that want to see it (network.last_reward).
        """
        return self.decide(observation, reward).action

    @torch.inference_mode()
    def decide(self, observation: Any, reward: Any = 0.0, *, state: Tree | None = None) -> Decision:
        """Return the action with its log probability, the value and the core's new state.

        Args:
            observation: of the environment, or N of them with a leading axis.
            reward: of the last action, as for `act`.
            state: of a decision before, to continue from that one instead of from the last.

        Raises:
            UserError: the observation does not have the shape of the environment's, or N changed without a `reset`.
        """
        seen, is_single = self._encoded(observation)
        count = len(leaves(seen)[0][1])
        self._prepare(count)
        if isinstance(self._env, LastInputs):
            seen = self._env.extend(seen, self._first, self._action, np.broadcast_to(reward, count))
        before = self._state if state is None else tensors_of(state, is_single)
        timed = map_tree(lambda array: torch.as_tensor(np.ascontiguousarray(array)).unsqueeze(0), seen)  # T = 1
        output = self._network(timed, torch.from_numpy(self._first).unsqueeze(0), before)
        distribution = self._network.distribution(output.policy, timed)
        action = distribution.mode() if self._deterministic else distribution.sample(self._generator)
        value = self._network.value(output.value, torch.from_numpy(np.repeat(self._env.task[:1], count))).estimate
        self._action, self._state, self._first = action[0].numpy(), output.state, np.zeros(count, bool)
        made = Decision(
            self._env.decode(self._action),
            distribution.log_prob(action)[0].numpy(),
            value[0].numpy(),
            map_tree(lambda tensor: tensor.numpy().copy(), output.state),
        )
        return single(made) if is_single else made

    def _prepare(self, count: int) -> None:
        """Open episodes after a `reset`, for as many observations as there are now."""
        if not self._count:
            self._count, self._first = count, np.ones(count, bool)
            self._state = self._network.initial_state(count)
            action = self._env.spec.action.array
            self._action = np.zeros((count, *action.shape), action.dtype)
        if self._count != count:
            raise UserError(f"{count} observations after {self._count}: call reset() before their number changes")

    def _encoded(self, observation: Any) -> tuple[Tree, bool]:
        """Return observations as arrays [N, ...], and whether it was a single one."""
        for batched, is_single in ((with_batch_axis, True), (lambda given: given, False)):
            try:
                encoded = self._env.encode(batched(observation))
            except Exception:  # not an observation of this form
                continue
            if self._fits(encoded):
                return encoded, is_single
        wanted = {name or "observation": spec.shape for name, spec in leaves(self._env.spec.observation)}
        raise UserError(
            f"the observation is neither one of this environment's nor N of them: expected the shapes {wanted}"
        )

    def _fits(self, encoded: Tree) -> bool:
        """Return whether these are N observations."""
        spec = self._env.spec.observation
        specs = dict(leaves(spec))
        arrays = leaves(as_dict(encoded) if isinstance(spec, dict) else encoded)
        count = arrays[0][1].shape[:1]
        return bool(count) and all(array.shape == (*count, *specs[path].shape) for path, array in arrays)


def single(made: Decision) -> Decision:
    """Return the only one of N = 1 decisions."""
    state = map_tree(lambda array: array[0], made.state)
    return Decision(made.action[0], float(made.log_prob[0]), float(made.value[0]), state)


def tensors_of(state: Tree, is_single: bool) -> Tree:
    """Return a state of a `Decision` as the network takes it."""
    return map_tree(lambda array: torch.as_tensor(array[None] if is_single else array), state)


def with_batch_axis(observation: Any) -> Any:
    """Return one raw observation as a batch of one."""
    if isinstance(observation, tuple):
        return tuple(with_batch_axis(part) for part in observation)
    if isinstance(observation, dict):
        return {key: with_batch_axis(part) for key, part in observation.items()}
    return np.asarray(observation)[None]


def load(
    run: str | Path,
    *,
    deterministic: bool = False,
    best: bool = False,
    seed: int = 1,
    task: str | None = None,
    env: Callable[..., Any] | None = None,
    trust: bool = False,
) -> TrainedPolicy:
    """Load the policy of a run, ready to act.

        policy = pronk.load("runs/mine", deterministic=True)
        action = policy.act(observation)

    Args:
        run: its directory, its name under runs/, `last`, or a .safetensors file that `pronk export` wrote.
        deterministic: take the most likely action instead of sampling.
        best: the best checkpoint instead of the newest.
        seed: of the sampling.
        task: the one to play, of a run with several; by default the first.
        env: the class or function that makes the environment, if the run's own cannot be imported here, as one from
            another notebook.
        trust: import and call what the run names, even if this account has not trained with it. Such a run is refused
            otherwise (`UserError`).
    """
    is_file = str(run).endswith(".safetensors")
    state = read_safetensors(Path(run)) if is_file else checkpoint_of(find_run(str(run)), best)
    return TrainedPolicy(config_to_play(state, run, trust, env), state, deterministic, seed, task)


def read_safetensors(path: Path) -> dict[str, Any]:
    """The configuration and weights of an exported policy, in the form of a checkpoint."""
    import_extra("safetensors", f"loading {path}", "export")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["pronk"])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return {"config": facts["config"], "learner": {"network": weights}}
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    except (KeyError, ValueError):
        raise UserError(f"{path} was not written by `pronk export`: it does not say which network it is for") from None
