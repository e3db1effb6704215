"""Which encoder each entry of an observation gets with `network.torso=auto`, from its spec alone.

    image up to 20 pixels wide (MinAtar)           small
    the same of bytes (MiniGrid)                   codes: what a cell holds is a name, not a brightness
    image up to 64 pixels wide                     compact
    larger image                                   shallow
    numbers, vectors, labels and text, joined      mlp; text beside a grid of codes goes with the grid

Nothing here needs torch, so `pronk show` and the other sections of the configuration can ask too.
"""

from __future__ import annotations

from typing import NamedTuple

from pronk.types import ArraySpec, Tree, leaves

SMALL, MEDIUM = 20, 64  # pixels: the longest side of an image that `small` and `compact` take
LEAST_COMPACT, LEAST_SHALLOW = 10, 20  # pixels: the shortest side that leaves something after the convolutions
LEAST_GRID = 3  # cells: the width of the smallest convolution
LEAST_GREY = 1024  # pixels: a smaller array without channels is a table of numbers, not a picture
TEXT_ALONE: tuple[str, tuple[int, ...]] = ("mlp", ())  # the kind of a text that is not beside a grid of codes


class Group(NamedTuple):
    """Entries of an observation that go through one encoder."""

    encoder: str
    entries: dict[str, ArraySpec]  # by path


def groups(observation: Tree) -> list[Group]:
    """Return the encoders of an observation and the entries of each. Images of one size and encoder share one.

    Texts go with the first grid of codes, if there is one, because their words may name what is in its cells.
    """
    entries = leaves(observation)
    kinds = [_encoder_and_size(spec) for _, spec in entries]
    text_kind = next((kind for kind in kinds if kind[0] == "codes"), TEXT_ALONE)
    found: dict[tuple[str, tuple[int, ...]], dict[str, ArraySpec]] = {}
    for (path, spec), kind in zip(entries, kinds, strict=True):
        found.setdefault(text_kind if spec.words else kind, {})[path] = spec
    return [Group(encoder, members) for (encoder, _), members in found.items()]


def _encoder_and_size(spec: ArraySpec) -> tuple[str, tuple[int, ...]]:
    """Return the encoder of a single entry, and the size of its picture."""
    encoder = encoder_of(spec)
    return encoder, () if encoder == "mlp" else picture(spec)[1:]


def encoder_of(spec: ArraySpec) -> str:
    """Return the encoder of a single entry: `mlp` or the name of an image torso."""
    if not is_image(spec):
        return "mlp"
    _, height, width = picture(spec)
    shortest, longest = sorted((height, width))
    if shortest < LEAST_COMPACT or longest <= SMALL:
        return "codes" if spec.dtype == "uint8" else "small"
    return "compact" if shortest < LEAST_SHALLOW or longest <= MEDIUM else "shallow"


def is_image(spec: ArraySpec) -> bool:
    """Whether an entry is a picture: with channels, a stack of such, or grey and large enough to be one."""
    if spec.categories or spec.words or len(spec.shape) not in (2, 3, 4):
        return False
    _, height, width = picture(spec)
    return min(height, width) >= LEAST_GRID and (len(spec.shape) > 2 or spec.size >= LEAST_GREY)


def picture(spec: ArraySpec) -> tuple[int, int, int]:
    """Return channels, height and width of an image: [H, W], [H, W, C], [C, H, W], [S, H, W, C] or [S, C, H, W]."""
    if len(spec.shape) == 2:
        height, width = spec.shape
        return 1, height, width
    image, stack = spec.shape[-3:], 1 if len(spec.shape) == 3 else spec.shape[0]
    channels, height, width = image if channels_first(image) else (image[2], *image[:2])
    return stack * channels, height, width


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether the first of three axes holds the channels.

    Most pictures are square, so the axis that differs from the other two holds the channels. Otherwise it is the
    shorter one of the first and the last axis, or the last if they are equal.
    """
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return middle == last
    return first < last


def without_mask(observation: Tree) -> Tree:
    """Return the observation without its `action_mask`, which describes the actions, not the situation."""
    if not isinstance(observation, dict):
        return observation
    return {key: part for key, part in observation.items() if key != "action_mask"}


def describe(observation: Tree) -> str:
    """Return what `network.torso=auto` chooses, such as `image (7x7x3 uint8): codes; speed (1 number): mlp`."""
    return "; ".join(
        f"{', '.join(_entry(path, spec) for path, spec in group.entries.items())}: {group.encoder}"
        for group in groups(without_mask(observation))
    )


def _entry(path: str, spec: ArraySpec) -> str:
    return f"{path} ({_kind(spec)})" if path else _kind(spec)


def _kind(spec: ArraySpec) -> str:
    if spec.words:
        return f"text of up to {spec.size} words"
    if spec.categories:
        least, most = min(spec.categories), max(spec.categories)
        classes = f"{least} to {most}" if least < most else str(most)
        return f"{spec.size} labels of {classes}" if spec.size > 1 else f"label of {classes}"
    if is_image(spec):
        return f"{'x'.join(map(str, spec.shape))} {spec.dtype}"
    return "1 number" if spec.size == 1 else f"{spec.size} numbers"
