"""A network on several threads of a CPU: each computes outputs and gradients of its share of a batch's columns.

    forward     columns 0 1 | 2 3  -->  a thread each  -->  outputs side by side  -->  the loss sees one batch
    backward    the loss's gradient of these outputs  -->  a thread each  -->  added up in the weights' gradients

torch's own threads divide every single operation, and wait for the slowest of them each time. While actors use the
cores too, that is hardly faster than one thread. These meet only twice per update, and the actors play on the core of
the one that is ready first, so no core is idle.

The sum of two shares does not depend on which is ready first; with three or more its last digits do.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor

from pronk.networks.base import Network, Output
from pronk.types import Tree, map_tree


class NetworkOnThreads:
    """Call it as the network. Only for gradients: the core's state in its output is the one before the batch."""

    def __init__(
        self, network: Network, threads: int, context: Callable[[], contextlib.AbstractContextManager[Any]]
    ) -> None:
        """`context`: entered in each thread around the network, such as `torch.autocast`, which is per thread."""
        self._network, self._context = network, context
        self._threads = [ThreadPoolExecutor(1, f"learner-{index}", _use_one_thread) for index in range(threads)]
        self._joint = torch.zeros((), requires_grad=True)  # without it autograd would not call `backward`

    def __call__(self, observation: Tree, first: Tensor, state: Tree) -> Output:
        policy, value = _Joined.apply(self, self._joint, observation, first, state)
        return Output(policy, value, state)

    def shares(self, columns: int) -> list[slice]:
        """Divide so many columns; each thread has as many as any other, or one more."""
        count = min(columns, len(self._threads))
        ends = [columns * index // count for index in range(count + 1)]
        return [slice(begin, end) for begin, end in itertools.pairwise(ends)]

    def each(self, function: Callable[..., Any], *arguments: list[Any]) -> list[Any]:
        """Call a function for each share, in the share's thread, and return all results when all have ended."""
        calls = [thread.submit(function, *each) for thread, *each in zip(self._threads, *arguments, strict=False)]
        wait(calls)  # also where one of them has failed: nothing may go on in the background
        return [call.result() for call in calls]

    def forward(self, share: slice, observation: Tree, first: Tensor, state: Tree) -> tuple[Tensor, Tensor]:
        """Compute policy and value of a share."""
        with torch.enable_grad(), self._context():
            of_share = map_tree(lambda array: array[:, share], observation)
            output = self._network(of_share, first[:, share], map_tree(lambda array: array[share], state))
        return output.policy, output.value


class _Joined(torch.autograd.Function):
    """Policy and value of all columns."""

    @staticmethod
    def forward(
        ctx: Any, threads: NetworkOnThreads, joint: Tensor, observation: Tree, first: Tensor, state: Tree
    ) -> tuple[Tensor, Tensor]:
        ctx.threads, ctx.shares = threads, threads.shares(first.shape[1])
        inputs = ([given] * len(ctx.shares) for given in (observation, first, state))
        ctx.outputs = threads.each(threads.forward, ctx.shares, *inputs)
        policy, value = zip(*ctx.outputs, strict=True)
        return torch.cat([part.detach() for part in policy], 1), torch.cat([part.detach() for part in value], 1)

    @staticmethod
    def backward(ctx: Any, policy: Tensor, value: Tensor) -> tuple[None, ...]:
        ctx.threads.each(_backward, ctx.outputs, [(policy[:, share], value[:, share]) for share in ctx.shares])
        del ctx.outputs
        return None, None, None, None, None


def _backward(outputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> None:
    """Add the gradients of a share to the weights'. torch lets only one thread at a time add to a weight."""
    pairs = zip(outputs, gradients, strict=True)
    learnt, given = zip(*((output, gradient) for output, gradient in pairs if output.requires_grad), strict=True)
    torch.autograd.backward(learnt, given)


def _use_one_thread() -> None:
    torch.set_num_threads(1)
