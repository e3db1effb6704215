"""Writes the short program that goes with an exported policy: `act(observation)` gives the most probable action."""

from __future__ import annotations

from typing import Any

from pronk.envs.words import WORD
from pronk.exports.base import Format
from pronk.exports.plain_policy import PlainPolicy


def program_text(form: Format, policy: PlainPolicy, file: str, environment: str) -> str:
    """Return the program that acts in `environment` with `file`, which is in the same folder."""
    loading = form.program(file)
    imports = max((number for number, line in enumerate(loading) if line.startswith(("import ", "from "))), default=-1)
    lines = [
        f'"""Acts in {environment} with {file}."""',
        "",
        *(["import re", "import zlib"] if has_text(policy) else []),
        "from pathlib import Path",
        "",
        "import numpy as np",
        *loading[: imports + 1],
        "",
        "here = Path(__file__).resolve().parent",
        *loading[imports + 2 :],
    ]
    if any(line.startswith("def run(") for line in loading):
        call = [zero_observation(policy), *(["first=True"] if "first" in policy.inputs else [])]
        lines += [
            "",
            "",
            *(numbering(policy) if has_text(policy) else []),
            *acting(policy),
            "",
            "",
            'if __name__ == "__main__":',
            f"    print(act({', '.join(call)}))",
        ]
    return "\n".join(lines) + "\n"


def acting(policy: PlainPolicy) -> list[str]:
    """`act`, which makes a batch of one for `run`, and the `state` that it keeps between calls."""
    inputs = [f'"{name}": {batch_of_one(path, policy)}' for path, name in policy.observed.items()]
    arguments, lines = ["observation"], []
    if "first" in policy.inputs:
        inputs.append('"first": np.array([first])')
        arguments.append("first=False")
    if "reward" in policy.inputs:
        inputs.append('"reward": np.array([reward], np.float32)')
        arguments.append("reward=0.0")
    if policy.state:
        zeros = (f'    "{name}": np.zeros({(1, *spec.shape)}, np.{spec.dtype}),' for name, spec in policy.state.items())
        lines += ["state = {", *zeros, "}", "", ""]
        inputs.append("**state")
    lines += [f"def act({', '.join(arguments)}):", f"    outputs = run({{{', '.join(inputs)}}})"]
    if policy.state:
        lines.append('    state.update((name, outputs[name.replace("state", "next")]) for name in state)')
    return [*lines, f'    return outputs["action"][0]  # {how_to_sample(policy)}']


def batch_of_one(path: str, policy: PlainPolicy) -> str:
    spec = policy.inputs[policy.observed[path]]
    keys = "".join(f"[{key if key.isdigit() else repr(key)}]" for key in path.split("/")) if is_tree(policy) else ""
    array = (
        f"numbers(observation{keys}, {spec.shape[0]})"
        if spec.words
        else f"np.asarray(observation{keys}, np.{spec.dtype})"
    )
    return f"{array}[None]".replace("'", '"')


def has_text(policy: PlainPolicy) -> bool:
    """Whether an entry of the observation is text."""
    return any(spec.words for spec in policy.inputs.values())


def numbering(policy: PlainPolicy) -> list[str]:
    """`numbers`, which turns a text into an array as `envs/words.py` does."""
    spec = next(spec for spec in policy.inputs.values() if spec.words)
    return [
        "def numbers(text, length):",
        f"    words = re.findall({WORD!r}, text.lower())[:length]".replace("'", '"'),
        f"    found = [1 + zlib.crc32(word.encode()) % {spec.words} for word in words]",
        f"    return np.array(found + [0] * (length - len(found)), np.{spec.dtype})",
        "",
        "",
    ]


def is_tree(policy: PlainPolicy) -> bool:
    """Whether the environment's observation has entries; beside a last action, a bare array is an entry too."""
    return list(policy.observed.values()) != ["observation"]


def zero_observation(policy: PlainPolicy) -> str:
    """An observation of zeros that allows every action, as Python text."""
    tree: Any = {}
    for path, name in policy.observed.items():
        node = tree
        *parents, leaf = path.split("/")
        for key in parents:
            node = node.setdefault(key, {})
        spec, make = policy.inputs[name], "ones" if leaf == "action_mask" else "zeros"
        node[leaf] = f"np.{make}({spec.shape}, np.{spec.dtype})" if spec.shape else "0"
        if spec.words:
            node[leaf] = '"go on"'
    return tree_text(tree) if is_tree(policy) else next(iter(tree.values()))


def tree_text(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    if all(key.isdigit() for key in tree):
        return f"({', '.join(map(tree_text, tree.values()))},)"
    return "{" + ", ".join(f'"{key}": {tree_text(part)}' for key, part in tree.items()) + "}"


def how_to_sample(policy: PlainPolicy) -> str:
    """How to sample as in training, instead of taking the most probable action."""
    if not policy.action.choices:
        return "the mean; to sample: add exp(log_std) x noise to `mean` before scaling it to the action's range"
    if policy.action.shape == ():
        return f'to sample: np.argmax(outputs["logits"][0] + np.random.gumbel(size={policy.action.choices[0]}))'
    return "to sample: add np.random.gumbel to each choice's logits before its argmax"
