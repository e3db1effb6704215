"""Texts: the words' numbers, and the encoder against a slow one."""

import warnings

import numpy as np
import pytest
import torch

from pronk.envs.words import BUCKETS, encode_texts, word_numbers
from pronk.networks.text import HIDDEN, TextEncoder
from pronk.types import ArraySpec

TEXTS = ["go to the red ball", "", "go to the blue box, then open the door", "go to the red ball", "stop"]
SPEC = ArraySpec((16,), "int16", words=BUCKETS)


def encoder() -> TextEncoder:
    torch.manual_seed(1)
    return TextEncoder(SPEC)


def slowly(network: TextEncoder, numbers: np.ndarray) -> torch.Tensor:
    """One text, word by word."""
    hidden = cell = torch.zeros(1, HIDDEN)
    for number in numbers[numbers > 0]:
        word = network._embedding.weight[int(number)].unsqueeze(0)
        hidden, cell = network._cell(word, (hidden, cell))
    return hidden[0]


def test_a_word_has_the_same_number_everywhere_and_zeros_follow_the_words():
    assert word_numbers("Go to the  RED ball", 7).tolist() == [775, 757, 79, 456, 380, 0, 0]
    assert word_numbers("ball, ball", 4).tolist()[0] == word_numbers("ball, ball", 4).tolist()[2]
    assert word_numbers("", 2).tolist() == [0, 0]


def test_single_and_batched_texts_are_encoded_alike():
    batched = encode_texts(np.array(TEXTS), 16)
    assert (batched.dtype, batched.shape) == (np.int16, (5, 16))
    for text, row in zip(TEXTS, batched, strict=True):
        np.testing.assert_array_equal(encode_texts(text, 16), row)


def test_a_warning_says_that_a_text_is_cut():
    with pytest.warns(UserWarning, match="a text of 4 words is cut to 3"):
        cut = word_numbers("one more long text", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fits = word_numbers("one more long", 3)
    assert cut.tolist() == fits.tolist()


def test_the_encoder_walks_through_the_words_of_each_text():
    network, numbers = encoder(), encode_texts(TEXTS, 16)
    got = network(torch.from_numpy(numbers))
    torch.testing.assert_close(got, torch.stack([slowly(network, row) for row in numbers]))
    torch.testing.assert_close(got[1], torch.zeros(HIDDEN))
    got.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in network.parameters())


def test_encoding_every_row_in_full_gives_the_same():
    network, numbers = encoder(), torch.from_numpy(encode_texts(TEXTS, 16))
    torch.testing.assert_close(network._encode(numbers), network(numbers))
    traced = torch.jit.trace(network, (numbers,))
    torch.testing.assert_close(traced(numbers[2:4]), network(numbers[2:4]))


def test_texts_without_a_word():
    assert encoder()(torch.zeros(3, 16, dtype=torch.int16)).tolist() == [[0.0] * HIDDEN] * 3
