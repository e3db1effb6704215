"""Image torsos. Bytes come from the environment and are scaled on the device; channels_last is faster on a CPU.

Every entry of the observation that is an image goes through the convolutions; the other entries (last action, last
reward, a vector) are joined to the features, as in the paper.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from pronk.config import NetworkConfig
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
        self._images = {path: spec for path, spec in named.items() if is_image(spec)}
        shapes = [planes(torch.zeros(1, *spec.shape), spec).shape[1:] for spec in self._images.values()]
        if len({shape[1:] for shape in shapes}) != 1:
            raise UserError(
                f"network.torso={config.torso} needs images of one size (arrays of rank 3 or 4) in the observation; "
                f"it has {[spec.shape for spec in named.values()]}; try network.torso=mlp"
            )
        depth = sum(shape[0] for shape in shapes)
        self._convolutions = self.convolutions(depth)
        try:
            flat = self._convolutions(torch.zeros(1, depth, *shapes[0][1:])).numel()
        except RuntimeError:
            raise UserError(
                f"network.torso={config.torso}: an image of {shapes[0][1]}x{shapes[0][2]} is too small for it; "
                "try network.torso=small or network.torso=compact"
            ) from None
        self._linear = orthogonal(nn.Linear(flat, self.features), RELU_GAIN)
        self._standardise = config.standardise
        self._others = [path for path in named if path not in self._images]
        self._flat = Flat({path: named[path] for path in self._others})
        self.size = self.features + self._flat.size

    def convolutions(self, channels: int) -> nn.Module:
        """[M, channels, H, W] -> [M, C, h, w], activated."""
        raise NotImplementedError

    def forward(self, observation: Tree) -> Tensor:
        """[M, size]."""
        arrays = dict(leaves(observation))
        pictures = [planes(arrays[path], spec) for path, spec in self._images.items()]
        stacked = torch.cat(pictures, 1) if len(pictures) > 1 else pictures[0]
        if self._standardise:
            stacked = standardised(stacked)
        features = torch.relu(self._linear(self._convolutions(stacked).flatten(1)))
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


def is_image(spec: ArraySpec) -> bool:
    """A picture, or a stack of colour pictures; not labels."""
    return len(spec.shape) in (3, 4) and not spec.categories


def planes(array: Tensor, spec: ArraySpec) -> Tensor:
    """Images [M, ...] as floats [M, C, H, W], channels_last in memory; bytes scaled to [0, 1]."""
    if len(spec.shape) == 4:  # a stack of colour pictures [S, H, W, 3]
        array = array.permute(0, 1, 4, 2, 3).flatten(1, 2)
    elif not channels_first(spec.shape):
        array = array.permute(0, 3, 1, 2)
    pixels = array.to(memory_format=torch.channels_last).float()
    return pixels * (1 / 255) if spec.dtype == "uint8" else pixels


def standardised(pictures: Tensor) -> Tensor:
    """Each of [M, C, H, W] with mean 0 and deviation 1; an even one becomes 0."""
    variance, mean = torch.var_mean(pictures, (1, 2, 3), correction=0, keepdim=True)
    return (pictures - mean) * (variance + EVEN).rsqrt()


def channels_first(shape: tuple[int, ...]) -> bool:
    """Pictures are mostly square: the odd axis out holds the channels. Else the shorter end does, or the last one."""
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return middle == last
    return first < last
