"""ONNX: one file for onnxruntime and for most other engines, in any language. The batch is as wide as you like."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pronk.config.named import import_extra
from pronk.exports.base import Run
from pronk.exports.plain_policy import PlainPolicy
from pronk.types import Failure


class Onnx:
    """A `Format`."""

    suffix = ".onnx"
    note = ""

    def __init__(self, policy: PlainPolicy) -> None:
        self._policy = policy
        for package in ("onnx", "onnxscript", "onnxruntime"):
            import_extra(package, "--to onnx", "export")

    def write(self, path: Path, example: tuple[Tensor, ...], facts: str) -> None:
        """Through torch.export, which is what PyTorch means to keep."""
        import onnx

        batch = torch.export.Dim("batch")
        try:
            with quiet():
                program = torch.onnx.export(
                    self._policy,
                    example,
                    dynamo=True,
                    input_names=list(self._policy.inputs),
                    output_names=list(self._policy.outputs),
                    dynamic_shapes={"arrays": tuple({0: batch} for _ in example)},
                    verbose=False,
                )
        except torch.onnx.errors.OnnxExporterError as error:
            cause = str(error.__cause__ or error).strip().splitlines()[0]
            raise Failure(
                f"PyTorch cannot export this network to ONNX: {cause}; --to safetensors always works"
            ) from error
        assert program is not None
        model = forget_origins(program.model_proto)
        onnx.helper.set_model_props(model, {"pronk": facts})
        onnx.checker.check_model(model)
        onnx.save(model, path)

    def open(self, path: Path) -> Run:
        """By onnxruntime, on one thread of the CPU."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = list(self._policy.outputs)

        def run(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return dict(zip(names, session.run(names, given), strict=True))

        return run

    def use(self, file: str) -> list[str]:
        """See `Format.use`."""
        return [
            "import onnxruntime",
            "",
            f'session = onnxruntime.InferenceSession(here / "{file}")',
            "names = [output.name for output in session.get_outputs()]",
            "",
            "",
            "def run(given):",
            "    return dict(zip(names, session.run(names, given)))",
        ]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The exporter tells of its progress and of packages that it would know how to use."""
    before, nowhere = logging.root.manager.disable, io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def forget_origins(model: Any) -> Any:
    """Without the exporter's notes: they hold the paths of source files on this machine."""
    graph = model.graph
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer, graph, model):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return model
