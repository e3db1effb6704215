"""torch.distributed, as far as learners need it: one sum and one copy. NCCL between GPUs, else gloo."""

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

SECONDS = 20.0  # everybody is there when a sum begins, so one that takes longer has lost somebody


class Collective:
    """The learners' common operations on tensors. Raises RuntimeError when one of them is gone."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def add_up(self, gradients: Tensor, weight: float) -> float:
        """Overwrite everybody's gradients with their weighed sum; gives its norm."""
        import torch.distributed as dist

        gradients.mul_(weight)
        dist.all_reduce(gradients)
        return float(gradients.norm())

    def copy(self, tensors: list[Tensor]) -> None:
        """Overwrite everybody's tensors with learner 0's."""
        import torch.distributed as dist

        for tensor in tensors:
            moved = tensor.to(self._device)  # itself, but for what an optimiser counts on the CPU
            dist.broadcast(moved, 0)
            if moved is not tensor:
                tensor.copy_(moved)


@contextlib.contextmanager
def collective(
    backend: str, store: object, rank: int, count: int, own_host: str, device: torch.device
) -> Iterator[Collective]:
    """Connect all learners with one another."""
    import torch.distributed as dist

    interface = interface_of(own_host)
    if interface:  # else gloo goes by the host's name, which on many machines means the loopback
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    limit = datetime.timedelta(seconds=SECONDS)
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=limit)  # type: ignore[arg-type]
    try:
        yield Collective(device)
    finally:
        dist.destroy_process_group()


def backend_for(devices: list[tuple[str, str]]) -> str:
    """NCCL wants a GPU of its own for everybody. A device is a machine's name and a device of torch."""
    import torch.distributed as dist

    all_gpus = all(device.startswith("cuda") for _, device in devices)
    return "nccl" if all_gpus and len(set(map(tuple, devices))) == len(devices) and dist.is_nccl_available() else "gloo"


def interface_of(address: str) -> str | None:
    """The network interface that has this address; None where the machine does not tell."""
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
