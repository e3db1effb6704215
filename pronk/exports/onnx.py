"""ONNX: one file for onnxruntime and most other engines, in any language, with a batch of any size."""

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
from pronk.exports.plain_policy import ArrayFunction, PlainPolicy
from pronk.types import Failure


class Onnx:
    """A `Format`."""

    suffix = ".onnx"
    note = ""

    def __init__(self, policy: PlainPolicy) -> None:
        self._policy = policy
        for package in ("onnx", "onnxscript", "onnxruntime"):
            import_extra(package, "the onnx format", "export")

    def write(self, path: Path, example: tuple[Tensor, ...], facts: str) -> None:
        """Export through torch.export, the exporter that PyTorch maintains."""
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
            raise Failure(f"PyTorch cannot export this network to ONNX: {cause}; safetensors always works") from error
        assert program is not None
        model = without_origins(program.model_proto)
        onnx.helper.set_model_props(model, {"pronk": facts})
        onnx.checker.check_model(model)
        onnx.save(model, path)

    def open(self, path: Path) -> ArrayFunction:
        """Load with onnxruntime, on one thread of the CPU."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = list(self._policy.outputs)

        def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return dict(zip(names, session.run(names, inputs), strict=True))

        return run

    def program(self, file: str) -> list[str]:
        """See `Format.program`."""
        return [
            "import onnxruntime",
            "",
            f'session = onnxruntime.InferenceSession(here / "{file}")',
            "names = [output.name for output in session.get_outputs()]",
            "",
            "",
            "def run(inputs):",
            "    return dict(zip(names, session.run(names, inputs)))",
        ]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter, which prints its progress and warns of optional packages."""
    before, nowhere = logging.root.manager.disable, io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def without_origins(model: Any) -> Any:
    """Remove the exporter's notes: they contain paths of source files on this machine."""
    graph = model.graph
    for part in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer, graph, model):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return model
