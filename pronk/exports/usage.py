"""Writes the short program that goes with an exported policy: how to act with it where there is no Pronk."""

from __future__ import annotations

from typing import Any

from pronk.exports.base import Format
from pronk.exports.plain_policy import PlainPolicy
from pronk.types import ArraySpec


def usage(form: Format, policy: PlainPolicy, file: str, environment: str) -> str:
    """The program's text: `act(observation)` gives the likeliest action, and remembers what has to be remembered."""
    lines = [
        f'"""Acts in {environment} with {file}, without Pronk."""',
        "",
        "from pathlib import Path",
        "",
        "import numpy as np",
        *between("here = Path(__file__).resolve().parent", form.use(file)),
    ]
    if any("def run" in line for line in lines):
        lines += ["", "", *acting(policy)]
    return "\n".join(lines) + "\n"


def between(line: str, program: list[str]) -> list[str]:
    """Put a line after the imports of a program."""
    last = max((number for number, text in enumerate(program) if text.startswith(("import ", "from "))), default=-1)
    return [*program[: last + 1], "", line, *program[last + 2 :]]


def acting(policy: PlainPolicy) -> list[str]:
    """`state`, `act` and a first call."""
    given = [f'"{policy.observed[path]}": {one(path, policy)}' for path in policy.observed]
    arguments, call = ["observation"], [example(policy)]
    if "first" in policy.inputs:
        given.append('"first": np.array([first])')
        arguments.append("first=False")
        call.append("first=True")
    if "reward" in policy.inputs:
        given.append('"reward": np.array([reward], np.float32)')
        arguments.append("reward=0.0")
    lines = []
    if policy.remembers:
        empty = (
            f'    "{name}": np.zeros({(1, *spec.shape)}, np.{spec.dtype}),' for name, spec in policy.remembers.items()
        )
        lines += ["state = {", *empty, "}", "", ""]
        given.append("**state")
    lines += [f"def act({', '.join(arguments)}):", f"    given = {{{', '.join(given)}}}", "    answer = run(given)"]
    if policy.remembers:
        lines.append('    state.update((name, answer[name.replace("state", "next")]) for name in state)')
    lines += [f'    return answer["action"][0]  # {sampling(policy)}', "", ""]
    return [*lines, 'if __name__ == "__main__":', f"    print(act({', '.join(call)}))"]


def one(path: str, policy: PlainPolicy) -> str:
    """An entry of one observation as a batch of one."""
    spec = policy.inputs[policy.observed[path]]
    keys = "".join(f"[{key if key.isdigit() else repr(key)}]" for key in path.split("/")) if is_tree(policy) else ""
    return f"np.asarray(observation{keys}, np.{spec.dtype})[None]".replace("'", '"')


def is_tree(policy: PlainPolicy) -> bool:
    """Whether the environment's own observation has entries; beside a last action, a bare array looks like one."""
    return list(policy.observed.values()) != ["observation"]


def example(policy: PlainPolicy) -> str:
    """An observation of nothing."""
    tree: Any = {}
    for path, name in policy.observed.items():
        node = tree
        *parents, leaf = path.split("/")
        for key in parents:
            node = node.setdefault(key, {})
        node[leaf] = zeros(policy.inputs[name])
    return written_out(tree) if is_tree(policy) else next(iter(tree.values()))


def written_out(tree: Any) -> str:
    """A tree of texts as a dict of the program."""
    if isinstance(tree, str):
        return tree
    keys = [key if key.isdigit() else f'"{key}"' for key in tree]
    return "{" + ", ".join(f"{key}: {written_out(part)}" for key, part in zip(keys, tree.values(), strict=True)) + "}"


def zeros(spec: ArraySpec) -> str:
    """An array of zeros, in words."""
    return f"np.zeros({spec.shape})" if spec.shape else "0"


def sampling(policy: PlainPolicy) -> str:
    """How to act as in training, where actions are sampled."""
    if not policy.action.choices:
        return "the mean; as in training: add exp(log_std) x noise to `mean` before the action's range is applied"
    if policy.action.shape == ():
        return 'the likeliest; sampled: np.argmax(answer["logits"][0] + np.random.gumbel(size=' + (
            f"{policy.action.choices[0]}))"
        )
    return "the likeliest; to sample: add np.random.gumbel to each choice's logits before its argmax"
