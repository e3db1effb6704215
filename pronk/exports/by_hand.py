"""Writes a network of Pronk's out as a short program over torch's functions, with its weights in a dict `w`.

For those who have only the weights: every layer, shape and scale of a trained policy, in about a line per layer.
"""

from __future__ import annotations

from torch import nn

from pronk.exports.plain_policy import PlainPolicy
from pronk.networks.actor_critic import ActorCritic
from pronk.networks.cores import LstmCore, NoCore
from pronk.networks.distributions import MASKED
from pronk.networks.heads import ChoiceHead, GaussianHead
from pronk.networks.images import ImageTorso, Residual, channels_first
from pronk.networks.torsos import Flat, Mlp
from pronk.types import ArraySpec

IMPORTS = ["import torch", "from torch.nn import functional as F"]
LINEAR = ["def linear(x, name):", '    return F.linear(x, w[name + ".weight"], w[name + ".bias"])', "", ""]
CONV = [
    "def conv(x, name, *stride_and_padding):",
    '    return F.conv2d(x, w[name + ".weight"], w[name + ".bias"], *stride_and_padding)',
    "",
    "",
]


def program(policy: PlainPolicy) -> list[str]:
    """The lines that define `run(given)`, arrays by name in and out; none for a network that is not Pronk's own."""
    network = policy.network
    if type(network) is not ActorCritic:
        return []
    torso, body = network._torso, ["given = {name: torch.from_numpy(array) for name, array in given.items()}"]
    if "first" in policy.inputs:
        body.append('going_on = (~given["first"]).float()[:, None]')
    if isinstance(torso, ImageTorso):
        body += image_lines(policy, torso)
    elif isinstance(torso, Mlp):
        body += [f"x = {joined(policy, torso._flat)}", *layer_lines(torso._layers, "_torso._layers")]
    else:
        return []
    if isinstance(network._core, LstmCore):
        body += lstm_lines()
    elif not isinstance(network._core, NoCore):
        return []
    body += head_lines(policy, network._policy_head)
    helpers = [*LINEAR, *(CONV if isinstance(torso, ImageTorso) else [])]
    return [*helpers, "@torch.no_grad()", "def run(given):", *(f"    {line}" for line in body)]


def image_lines(policy: PlainPolicy, torso: ImageTorso) -> list[str]:
    """Pictures through the convolutions, the rest of the observation beside them."""
    pictures = [picture(given(policy, path), spec) for path, spec in torso._images.items()]
    lines = [f"x = {pictures[0]}" if len(pictures) == 1 else f"x = torch.cat([{', '.join(pictures)}], 1)"]
    lines += layer_lines(torso._convolutions, "_torso._convolutions")
    lines.append('x = linear(x.flatten(1), "_torso._linear").relu()')
    if torso._others:
        lines.append(f"x = torch.cat([x, {joined(policy, torso._flat)}], -1)")
    return lines


def layer_lines(module: nn.Module, name: str) -> list[str]:
    """One line for each layer of a sequence, its activation with it."""
    lines: list[str] = []
    for part, layer in module.named_children():
        where = f"{name}.{part}"
        match layer:
            case nn.Linear():
                lines.append(f'x = linear(x, "{where}")')
            case nn.Conv2d():
                lines.append(f'x = conv(x, "{where}", {layer.stride[0]}, {int(layer.padding[0])})')
            case nn.ReLU() | nn.Tanh():
                activation = "relu" if isinstance(layer, nn.ReLU) else "tanh"
                after_layer = lines and lines[-1].startswith(("x = linear(", "x = conv("))
                lines.append(f"{lines.pop() if after_layer else 'x = x'}.{activation}()")
            case nn.MaxPool2d():
                lines.append(f"x = F.max_pool2d(x, {layer.kernel_size}, {layer.stride}, {layer.padding})")
            case Residual():
                inner = f'conv(x.relu(), "{where}._first", 1, 1).relu()'
                lines.append(f'x = x + conv({inner}, "{where}._second", 1, 1)')
            case nn.Sequential():
                lines += layer_lines(layer, where)
            case _:
                raise NotImplementedError(f"{type(layer).__name__} cannot be written out yet")
    return lines


def lstm_lines() -> list[str]:
    """The core, its memory cleared where an episode opens."""
    weights = ", ".join(f'w["_core._cell.{name}"]' for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return [
        'memory = given["state.hidden"] * going_on, given["state.cell"] * going_on',
        f"x, cell = torch.lstm_cell(x, memory, {weights})",
    ]


def head_lines(policy: PlainPolicy, head: nn.Module) -> list[str]:
    """The distribution's numbers, the likeliest action, and the answer."""
    action, units = policy.action, policy.units
    answer = {"action": "action", "logits": "logits", "mean": "mean", "log_std": "log_std"}
    answer |= {"next.hidden": "x", "next.cell": "cell"}
    if isinstance(head, ChoiceHead):
        assert units.start is not None
        start = f" + torch.tensor({units.start.tolist()})" if units.start.any() else ""
        lines = ['logits = linear(x, "_policy_head._linear")']
        if policy.is_masked:
            mask = given(policy, "action_mask")
            lines.append(f"logits = logits.masked_fill({mask} == 0, {MASKED:g})")
        if action.shape == ():
            lines.append("choice = logits.argmax(-1)")
        else:
            parts = f"logits.split({list(action.choices)}, -1)"
            lines.append(f"choice = torch.stack([part.argmax(-1) for part in {parts}], -1)")
        answer["action"] = f"choice{start}"
        answer["next.last_action"] = "choice + 1"
    else:
        assert isinstance(head, GaussianHead)
        shape = f".reshape(-1, *{list(action.shape)})"
        numbers = (tensor_text(getattr(units, name)) for name in ("middle", "reach", "low", "high"))
        middle, reach, low, high = numbers
        lines = [
            f'mean = linear(x, "_policy_head._mean"){shape}',
            f'log_std = w["_policy_head._log_std"].reshape({list(action.shape)}).expand_as(mean)',
            f"action = torch.minimum(torch.maximum({middle} + mean * {reach}, {low}), {high})",
        ]
        answer["next.last_action"] = "mean"
    pairs = ", ".join(f'"{name}": {answer[name]}' for name in policy.outputs)
    return [*lines, f"answer = {{{pairs}}}", "return {name: tensor.numpy() for name, tensor in answer.items()}"]


def tensor_text(values: object) -> str:
    """An array as it is written in a program."""
    text = repr(values.tolist())  # type: ignore[attr-defined]
    return f"torch.tensor({text.replace('inf', 'torch.inf')})"


def joined(policy: PlainPolicy, flat: Flat) -> str:
    """The entries of the observation as one vector of floats."""
    parts = [encoded(given(policy, path), spec) for path, spec in flat._specs.items()]
    return parts[0] if len(parts) == 1 else f"torch.cat([{', '.join(parts)}], -1)"


def encoded(array: str, spec: ArraySpec) -> str:
    """One entry, batched, as floats."""
    flat = array if len(spec.shape) == 1 else f"{array}.reshape(-1, {spec.size})"
    if spec.categories:
        columns = f"zip({flat}.T, {list(spec.categories)})"
        return f"torch.cat([F.one_hot(column, size) for column, size in {columns}], -1).float()"
    return f"{flat}.float() / 255" if spec.dtype == "uint8" else f"{flat}.float()"


def picture(array: str, spec: ArraySpec) -> str:
    """One entry, batched, as planes."""
    if len(spec.shape) == 4:
        array += ".permute(0, 1, 4, 2, 3).flatten(1, 2)"
    elif not channels_first(spec.shape):
        array += ".permute(0, 3, 1, 2)"
    return f"{array}.float() / 255" if spec.dtype == "uint8" else f"{array}.float()"


def given(policy: PlainPolicy, path: str) -> str:
    """An entry of the observation, as the program has it."""
    if path in policy.observed:
        return f'given["{policy.observed[path]}"]'
    if path == "last_reward":
        return '(given["reward"].clamp(-1, 1)[:, None] * going_on)'
    going_on = "going_on" if len(policy.inputs["state.last_action"].shape) == 1 else "going_on[:, 0]"
    if policy.action.choices:
        return f'(given["state.last_action"] * {going_on}.long())'
    dims = len(policy.action.shape)
    going_on = "going_on[:, 0]" if dims == 0 else f"going_on{'[..., None]' * (dims - 1)}"
    return f'(given["state.last_action"] * {going_on})'
