"""The two operations of torch.distributed that learners need: all-reduce and broadcast. NCCL on GPUs, else gloo."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import struct
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

TIMEOUT_SECONDS = 20.0  # every gradient is ready when an all-reduce begins, so a longer one has lost a learner


class Collective:
    """Operations on tensors of all learners. They raise RuntimeError when a learner is gone."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def add_up(self, gradients: Tensor, weight: float) -> float:
        """Overwrite the gradients of every learner with their weighted sum; return its norm."""
        import torch.distributed as dist

        gradients.mul_(weight)
        dist.all_reduce(gradients)
        return float(gradients.norm())

    def copy(self, tensors: list[Tensor]) -> None:
        """Overwrite the tensors of every learner with learner 0's."""
        import torch.distributed as dist

        for tensor in tensors:
            moved = tensor.to(self._device)  # the same tensor, except for counters that an optimiser keeps on the CPU
            dist.broadcast(moved, 0)
            if moved is not tensor:
                tensor.copy_(moved)


@contextlib.contextmanager
def collective(
    backend: str, store: object, name: str, position: int, count: int, own_host: str, device: torch.device
) -> Iterator[Collective]:
    """Connect learners.

    Args:
        backend: of torch.distributed.
        store: where they find one another.
        name: of this connection. A name can be used once.
        position: of this learner among them, from 0.
        count: how many they are.
        own_host: the address by which the others reach this one.
        device: of the tensors.
    """
    import torch.distributed as dist

    interface = interface_of(own_host)
    if interface:  # else gloo resolves the host's name, which is often the loopback
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    limit = datetime.timedelta(seconds=TIMEOUT_SECONDS)
    named = dist.PrefixStore(name, store)  # type: ignore[arg-type]
    dist.init_process_group(backend, store=named, rank=position, world_size=count, timeout=limit)
    try:
        yield Collective(device)
    finally:
        dist.destroy_process_group()


def backend_for(devices: list[tuple[str, str]]) -> str:
    """Return NCCL if every learner has its own GPU, else gloo. A device is a machine's name and a torch device."""
    import torch.distributed as dist

    all_gpus = all(device.startswith("cuda") for _, device in devices)
    return "nccl" if all_gpus and len(set(map(tuple, devices))) == len(devices) and dist.is_nccl_available() else "gloo"


def interface_of(address: str) -> str | None:
    """Return the network interface that has this address; None if it cannot be found."""
    if sys.platform != "linux":
        return None
    import fcntl

    get_address = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(any_socket, get_address, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
