"""Wrappers for images: resize, grayscale, and `auto`, which resizes only large images."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image

from pronk.envs.entries import Change, Entries
from pronk.types import Array, UserError

LARGE = 100  # pixels: an image that is higher or wider than this is resized by `auto`
AUTO_SIZE = 84  # DQN's, and the paper's for Atari
RED_GREEN_BLUE = np.array([0.299, 0.587, 0.114], np.float32)  # luminance


def auto(env: gym.Env) -> gym.Env:
    """Resize images that are larger than `LARGE` to `AUTO_SIZE`. Write `env.wrappers=[]` to keep their size."""
    if not has_large_picture(env.observation_space):
        return env
    notes: list[str] = []

    def change_of(path: str, space: gym.spaces.Box) -> tuple[gym.spaces.Box, Change] | None:
        if not has_large_picture(space):
            return None
        height, width = size_of(space.shape)
        notes.append(f"{path}: {height}x{width} pixels resized to {AUTO_SIZE}x{AUTO_SIZE} (env.wrappers=[] to see all)")
        return resized(space, AUTO_SIZE, AUTO_SIZE)

    changed = Entries(env, change_of)
    changed.notes = tuple(notes)
    return changed


def has_large_picture(space: gym.Space) -> bool:
    """Return whether a space is, or a Dict has, an image that `auto` resizes."""
    if isinstance(space, gym.spaces.Dict):
        return any(has_large_picture(part) for part in space.spaces.values())
    return isinstance(space, gym.spaces.Box) and is_picture(space) and max(size_of(space.shape)) > LARGE


def resize(env: gym.Env, size: Any) -> gym.Env:
    """Resize every image to `size` pixels, or [height, width], by averaging."""
    sizes = [size, size] if isinstance(size, int) else size
    if not (isinstance(sizes, list) and len(sizes) == 2 and all(type(n) is int and n > 0 for n in sizes)):
        raise UserError(f"size must be a number of pixels or [height, width], got {size!r}")
    return _of_images(env, lambda space: resized(space, *sizes))


def grayscale(env: gym.Env) -> gym.Env:
    """Turn colour images into one channel of luminance."""
    return _of_images(env, grayed)


def _of_images(env: gym.Env, change: Any) -> gym.Env:
    changed = Entries(env, lambda path, space: change(space) if is_picture(space) else None)
    if not changed.changed:
        raise UserError(f"the observation has no image that it could change: {env.observation_space}")
    return changed


def is_picture(space: gym.spaces.Box) -> bool:
    """Return whether a Box is an image of some size: [H, W, C] or [C, H, W] with few channels, a stack of these, or
    [H, W], which gets a channel when it is resized.
    """
    if space.dtype not in (np.uint8, np.float32, np.float64):
        return False
    if len(space.shape) == 2:  # a gray one, if it is of bytes and not a small map
        return space.dtype == np.uint8 and min(space.shape) >= 32
    if len(space.shape) not in (3, 4):
        return False
    return space.shape[channel_axis(space.shape)] <= 16 and min(size_of(space.shape)) >= 16


def channel_axis(shape: tuple[int, ...]) -> int:
    """Return the axis of the colours: the last one, or the first of the last three where that is shorter."""
    if len(shape) == 2:
        return 2
    return len(shape) - 3 if shape[-3] < shape[-1] else len(shape) - 1


def size_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return height and width."""
    if len(shape) == 2:
        return shape[0], shape[1]
    axis = channel_axis(shape)
    return (shape[-2], shape[-1]) if axis == len(shape) - 3 else (shape[-3], shape[-2])


def resized(space: gym.spaces.Box, height: int, width: int) -> tuple[gym.spaces.Box, Change]:
    """Return the space and the function that resize an image, or a stack of images."""
    axis, stacked = channel_axis(space.shape), len(space.shape) == 4

    def change(array: Array) -> Array:
        picture = np.moveaxis(array if array.ndim > 2 else array[..., None], axis, -1)
        frames = [picture_of_size(frame, height, width) for frame in picture] if stacked else []
        small = np.stack(frames) if stacked else picture_of_size(picture, height, width)
        return np.moveaxis(small.astype(array.dtype, copy=False), -1, axis)

    return _like(space, change), change


def picture_of_size(picture: Array, height: int, width: int) -> Array:
    """Resize [H, W, C] by averaging. Pillow knows bytes of 1, 3 and 4 channels, and floats of one."""
    if picture.shape[:2] == (height, width):
        return picture
    if picture.dtype == np.uint8 and picture.shape[-1] in (3, 4):
        return _averaged(picture, height, width)
    pillows = picture if picture.dtype == np.uint8 else picture.astype(np.float32)
    return np.stack([_averaged(each, height, width) for each in np.moveaxis(pillows, -1, 0)], -1)


def _averaged(picture: Array, height: int, width: int) -> Array:
    image = Image.fromarray(np.ascontiguousarray(picture))
    return np.asarray(image.resize((width, height), Image.Resampling.BOX))


def grayed(space: gym.spaces.Box) -> tuple[gym.spaces.Box, Change] | None:
    """Return the space and the function that turn colours into one channel; None where there is one already."""
    axis = channel_axis(space.shape)
    if len(space.shape) == 2 or space.shape[axis] == 1:
        return None

    def change(array: Array) -> Array:
        colours = np.moveaxis(array, axis, -1)[..., :3]
        gray = np.expand_dims(colours @ RED_GREEN_BLUE, axis)
        return np.rint(gray).astype(np.uint8) if array.dtype == np.uint8 else gray.astype(array.dtype)

    return _like(space, change), change


def _like(space: gym.spaces.Box, change: Change) -> gym.spaces.Box:
    """Return the space of changed arrays: with the same bounds."""
    low, high = float(np.min(space.low)), float(np.max(space.high))
    shape = change(np.zeros(space.shape, space.dtype)).shape
    return gym.spaces.Box(low, high, shape, space.dtype.type)
