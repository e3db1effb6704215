"""Image torsos. Bytes come from the environment and are scaled on the device; channels_last is faster on a CPU.

Every entry of the observation that is an image goes through the convolutions; the other entries (last action, last
reward, a vector) are joined to the features, as in the paper.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

from pronk.config import NetworkConfig
from pronk.config.encoders import channels_first, is_image, picture
from pronk.networks.initialise import orthogonal
from pronk.networks.torsos import Flat, Torso
from pronk.types import ArraySpec, Tree, UserError, leaves

RELU_GAIN = 2**0.5
EVEN = 1e-5  # variance below which a picture counts as even


class ImageTorso(Torso):
    """Convolutions, a fully connected layer, and the rest of the observation. Subclasses say which convolutions."""

    features = 256
    """Width of the fully connected layer."""

    def __init__(self, specs: Tree, config: NetworkConfig) -> None:
        super().__init__(specs, config)
        named = dict(leaves(specs))
        self._images = {path: spec for path, spec in named.items() if can_be_image(spec)}
        self._others = {path: spec for path, spec in named.items() if path not in self._images}
        sizes = {picture(spec)[1:] for spec in self._images.values()}
        if len(sizes) != 1:
            raise UserError(
                f"network.torso={config.torso} needs images of one size (arrays of rank 3 or 4) in the observation; "
                f"it has {[spec.shape for spec in named.values()]}; try network.torso=auto"
            )
        height, width = sizes.pop()
        channels = self.channels()
        self._convolutions = self.convolutions(channels)
        try:
            shape = self._convolutions(torch.zeros(1, channels, height, width)).shape
        except RuntimeError:
            raise UserError(
                f"network.torso={config.torso}: an image of {height}x{width} is too small for it; "
                "try network.torso=small or network.torso=compact"
            ) from None
        self._pools = config.pooling == "average"
        self._linear = orthogonal(nn.Linear(shape[1] if self._pools else shape.numel(), self.features), RELU_GAIN)
        self._norm = nn.LayerNorm(self.features) if config.layer_norm is True else nn.Identity()
        self._standardise = is_standardised(config)
        self._flat = Flat(self._others)
        self.size = self.features + self._flat.size

    def convolutions(self, channels: int) -> nn.Module:
        """[M, channels, H, W] -> [M, C, h, w], activated."""
        raise NotImplementedError

    def channels(self) -> int:
        """Return the number of channels of what `pictures` returns."""
        return sum(picture(spec)[0] for spec in self._images.values())

    def pictures(self, arrays: dict[str, Tensor]) -> Tensor:
        """Return [M, channels, H, W], what the convolutions see, from the entries of the observation by their path."""
        scaled = [in_unit_range(image) for image in self._planes(arrays)]
        stacked = torch.cat(scaled, 1) if len(scaled) > 1 else scaled[0]
        return standardised(stacked) if self._standardise else stacked

    def _planes(self, arrays: dict[str, Tensor]) -> list[Tensor]:
        """The images as they come, each [M, C, H, W]."""
        return [planes(arrays[path], spec) for path, spec in self._images.items()]

    def forward(self, observation: Tree) -> Tensor:
        """[M, size]."""
        arrays = dict(leaves(observation))
        seen = self._convolutions(self.pictures(arrays).contiguous(memory_format=torch.channels_last))
        seen = seen.mean((2, 3)) if self._pools else seen.flatten(1)
        features = torch.relu(self._norm(self._linear(seen)))
        if not self._others:
            return features
        return torch.cat([features, self._flat({path: arrays[path] for path in self._others})], -1)


class Shallow(ImageTorso):
    """The paper's smaller network: 16@8/4, 32@4/2, FC 256."""

    def convolutions(self, channels: int) -> nn.Module:
        """Two layers."""
        return conv_stack(channels, (16, 8, 4), (32, 4, 2))


class Nature(ImageTorso):
    """DQN's network: 32@8/4, 64@4/2, 64@3/1, FC 512."""

    features = 512

    def convolutions(self, channels: int) -> nn.Module:
        """Three layers."""
        return conv_stack(channels, (32, 8, 4), (64, 4, 2), (64, 3, 1))


class OptCnn(ImageTorso):
    """XingTian's: 16@8/4, 32@4/2, 256@11/1, for 84x84 with a padding that keeps 11x11 before the last layer."""

    def convolutions(self, channels: int) -> nn.Module:
        """Three layers; the last sees the whole picture."""
        return nn.Sequential(
            *conv(channels, 16, 8, 4, padding=2), *conv(16, 32, 4, 2, padding=2), *conv(32, 256, 11, 1)
        )


class Compact(ImageTorso):
    """For 42x42 frames on a laptop: 16@4/2, 32@4/2, FC 256."""

    def convolutions(self, channels: int) -> nn.Module:
        """Two layers."""
        return conv_stack(channels, (16, 4, 2), (32, 4, 2))


class Small(ImageTorso):
    """For grids of a few cells: 16@3/1, padded, FC 128 (MinAtar's own network)."""

    features = 128

    def convolutions(self, channels: int) -> nn.Module:
        """One layer."""
        return nn.Sequential(*conv(channels, 16, 3, 1, padding=1))


class Deep(ImageTorso):
    """The paper's larger network: three sections of 16, 32, 32 channels with two residual blocks each; 15 layers."""

    def convolutions(self, channels: int) -> nn.Module:
        """Sections, then a ReLU."""
        widths = itertools.pairwise([channels, 16, 32, 32])
        return nn.Sequential(*(Section(inputs, outputs) for inputs, outputs in widths), nn.ReLU())


class Section(nn.Sequential):
    """Convolution, max-pool that halves the picture, two residual blocks."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            orthogonal(nn.Conv2d(inputs, outputs, 3, padding=1), 1.0),
            nn.MaxPool2d(3, 2, padding=1),
            Residual(outputs),
            Residual(outputs),
        )


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._first = orthogonal(nn.Conv2d(width, width, 3, padding=1), RELU_GAIN)
        self._second = orthogonal(nn.Conv2d(width, width, 3, padding=1), RELU_GAIN)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x + self._second(torch.relu(self._first(torch.relu(x))))


def conv(inputs: int, outputs: int, kernel: int, stride: int, padding: int = 0) -> tuple[nn.Module, nn.Module]:
    """A convolution and its ReLU."""
    return orthogonal(nn.Conv2d(inputs, outputs, kernel, stride, padding), RELU_GAIN), nn.ReLU()


def conv_stack(inputs: int, *layers: tuple[int, int, int]) -> nn.Module:
    """Convolutions given as (channels, kernel, stride)."""
    modules: list[nn.Module] = []
    for outputs, kernel, stride in layers:
        modules += conv(inputs, outputs, kernel, stride)
        inputs = outputs
    return nn.Sequential(*modules)


def can_be_image(spec: ArraySpec) -> bool:
    """Return whether an image torso can take an entry: any array of rank 3 or 4."""
    return is_image(spec) or (len(spec.shape) in (3, 4) and not spec.categories)


def is_standardised(config: NetworkConfig) -> bool:
    """Decide `network.standardise`."""
    return config.torso == "auto" if config.standardise == "auto" else config.standardise


def planes(array: Tensor, spec: ArraySpec) -> Tensor:
    """Images [M, ...] as [M, C, H, W], a view where possible."""
    if len(spec.shape) == 2:
        return array.unsqueeze(1)
    if not channels_first(spec.shape[-3:]):
        array = array.movedim(-1, -3)
    return array.flatten(1, 2) if len(spec.shape) == 4 else array  # a stack: the oldest picture first


def in_unit_range(images: Tensor) -> Tensor:
    """Images as floats; bytes scaled to [0, 1]."""
    return images.float().mul_(1 / 255) if images.dtype == torch.uint8 else images.float()


def standardised(pictures: Tensor) -> Tensor:
    """Each of [M, C, H, W] with mean 0 and deviation 1; an even one becomes 0."""
    return functional.layer_norm(pictures, pictures.shape[1:], eps=EVEN)
