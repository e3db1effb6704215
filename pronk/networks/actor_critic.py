"""The paper's network: torso -> core -> policy head and value head.

The torso runs on all T x B observations at once (the paper's time folded into the batch); only the core walks through
time.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from pronk.config import NetworkConfig
from pronk.config.encoders import is_image, without_mask
from pronk.networks.auto import auto
from pronk.networks.base import Network, Output
from pronk.networks.codes import Codes
from pronk.networks.cores import Core, make_core
from pronk.networks.heads import ValueHead, policy_head
from pronk.networks.hl_gauss import HistogramHead
from pronk.networks.images import Compact, Deep, Nature, OptCnn, Shallow, Small
from pronk.networks.normalising import ObservationNormaliser
from pronk.networks.popart import PopArtHead
from pronk.networks.torsos import Mlp, Torso
from pronk.parameters import block_nbytes, places_in_block
from pronk.types import EnvSpec, PlainMlp, Tree, Unroll, Value, leaves, map_tree

TORSOS: dict[str, Callable[[Tree, NetworkConfig], Torso]] = {
    "auto": auto,
    "mlp": Mlp,
    "shallow": Shallow,
    "nature": Nature,
    "deep": Deep,
    "opt_cnn": OptCnn,
    "compact": Compact,
    "small": Small,
    "codes": Codes,
}


class ActorCritic(Network):
    """Torso, core and heads by name, from the spec alone."""

    def __init__(self, spec: EnvSpec, config: NetworkConfig) -> None:
        super().__init__(spec)
        make_torso, seen = TORSOS[config.torso], without_mask(spec.observation)
        self._torso: Torso = make_torso(seen, config)
        self._value_torso = make_torso(seen, config) if has_separate_value(seen, config) else None
        self._core: Core = make_core(self._torso.size, config)
        self._policy_head = policy_head(self._core.size, spec.action)
        self._value_head = value_head(self._core.size, len(spec.tasks), config)
        self._normaliser = ObservationNormaliser(seen if config.normalise is True else {})
        self.state_spec = self._core.state_spec

    def forward(self, observation: Tree, first: Tensor, state: Tree) -> Output:
        """See `Network.forward`."""
        observation = self._normaliser(without_mask(observation))
        features, state = self._core(self._features(self._torso, observation), first, state)
        policy = self._policy_head(features)  # before the other torso: the features are still in the cache
        value_features = self._features(self._value_torso, observation) if self._value_torso else features
        return Output(policy, self._value_head(value_features), state)

    def policy(self, observation: Tree, first: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """Without the value and its torso."""
        observation = self._normaliser(without_mask(observation))
        features, state = self._core(self._features(self._torso, observation), first, state)
        return self._policy_head(features), state

    def value(self, raw: Tensor, task: Tensor) -> Value:
        """See `Network.value`. The value head decides how values are represented."""
        return self._value_head.value(raw, task)

    def plain_mlp(self) -> PlainMlp | None:
        """See `Network.plain_mlp`."""
        torso, head = self._torso, self._policy_head
        if type(self) is not ActorCritic or type(torso) is not Mlp or not torso.is_plain or self.state_spec:
            return None
        names = {module: name for name, module in self.named_modules()}
        linears = {
            part: [names[layer] for layer in part.modules() if isinstance(layer, nn.Linear)] for part in (torso, head)
        }
        return PlainMlp(
            scales={path: names[entry] for path, entry in self._normaliser.entries.items()},
            layers=linears[torso],
            activation=torso.activation,
            head=linears[head][0],
            log_std=None if self.spec.action.choices else f"{names[head]}._log_std",
            places=places_in_block(self),
            nbytes=block_nbytes(self),
        )

    def observe(self, batch: Unroll) -> None:
        """See `Network.observe`."""
        acted_on = map_tree(lambda array: array[:-1], without_mask(batch.observation))
        self._normaliser.observe(acted_on, batch.valid)

    def _features(self, torso: Torso, observation: Tree) -> Tensor:
        """[T, B, ...] -> [T, B, F]."""
        folded = map_tree(lambda array: array.flatten(0, 1), observation)
        features = torso(folded)
        return features.unflatten(0, self._leading(observation))

    @staticmethod
    def _leading(observation: Tree) -> tuple[int, int]:
        while isinstance(observation, dict):
            observation = next(iter(observation.values()))
        return observation.shape[0], observation.shape[1]


def value_head(inputs: int, tasks: int, config: NetworkConfig) -> ValueHead | PopArtHead:
    """Make the configured value head."""
    if config.value == "hl_gauss":
        return HistogramHead(inputs, tasks)
    return PopArtHead(inputs, tasks) if config.popart is True else ValueHead(inputs)


def has_separate_value(specs: Tree, config: NetworkConfig) -> bool:
    """Decide `network.separate_value`: without a core, image or text, a torso is small enough to have two."""
    if config.separate_value != "auto":
        return config.separate_value
    if config.core != "none" or config.torso not in ("auto", "mlp"):
        return False
    return not any(spec.words or (is_image(spec) and config.torso == "auto") for _, spec in leaves(specs))
