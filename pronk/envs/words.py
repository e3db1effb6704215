"""Text observations as arrays: each word becomes the number of a hash bucket, as the paper feeds instructions.

For example, "go to the red ball" becomes [775, 757, 79, 456, 380, 0]...: zeros follow the words.
"""

from __future__ import annotations

import functools
import re
import warnings
import zlib
from typing import Any

import gymnasium as gym
import numpy as np

from pronk.types import Array, ArraySpec

BUCKETS = 1000  # the paper's number
MOST_WORDS = 64  # the longest missions of BabyAI have about 55
DTYPE = "int16"
WORD = r"\w+|[^\w\s]"  # a mark of punctuation is a word


def is_text(space: gym.Space) -> bool:
    """Return whether a space holds text: Gymnasium's Text, or MiniGrid's, which samples strings."""
    return isinstance(space, gym.spaces.Text) or (space.shape is None and isinstance(space.sample(), str))


def text_spec(space: gym.Space) -> ArraySpec:
    """Return the spec of texts of a space: one number per word, as many as its longest text can have."""
    longest = getattr(space, "max_length", None)  # in characters; MiniGrid's space does not say
    words = MOST_WORDS if longest is None else min(MOST_WORDS, max(1, int(longest)))
    return ArraySpec((words,), DTYPE, words=BUCKETS)


def encode_texts(values: Any, length: int) -> Array:
    """Return a text as `length` numbers, or several texts as [N, length]."""
    if isinstance(values, str):
        return word_numbers(values, length)
    return np.stack([word_numbers(str(value), length) for value in values])


@functools.lru_cache(maxsize=4096)
def word_numbers(text: str, length: int) -> Array:
    """Return the bucket of each word, from 1; then zeros. The array is read-only, because it is cached."""
    words = re.findall(WORD, text.lower())
    if len(words) > length:
        warnings.warn(f"a text of {len(words)} words is cut to {length}: {text[:60]}...", stacklevel=2)
    numbers = np.zeros(length, DTYPE)
    for index, word in enumerate(words[:length]):
        numbers[index] = 1 + zlib.crc32(word.encode()) % BUCKETS  # the same in every process, unlike hash()
    numbers.flags.writeable = False
    return numbers
