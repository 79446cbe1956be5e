"""Linears as OpenVINO compiles them for this CPU: weights of 4 or 8 bits stay compressed."""

import importlib
import importlib.util
from typing import Any

import numpy as np

from qbench.kernels.benchmark import Absent

NAME, DEVICE = "openvino", "CPU"


class OpenVinoLinears:
    """Several linears on one input, compiled as one model: y[i] = x @ weight[i].T.

    The weights are one weight whose rows are rotated by i, since equal constants would be stored once. The last one is
    not rotated, and its output is the one that `output` gives.

    weight    [N, K] float32, or int8 codes, or int4 codes in int8
    scale     [N, G] float16 of codes, for each K // G input features; None for float32
    bits      of a code
    x         [M, K] float32
    raises    Absent without OpenVINO
    """

    def __init__(
        self, weight: np.ndarray, scale: np.ndarray | None, bits: int, x: np.ndarray, copies: int, threads: int
    ) -> None:
        if importlib.util.find_spec(NAME) is None:
            raise Absent("openvino is not installed")
        self.ov, self.op = importlib.import_module(NAME), importlib.import_module("openvino.opset13")
        self.x, self.held = np.ascontiguousarray(x), []
        given = self.op.parameter(list(x.shape), self.ov.Type.f32)
        outputs = []
        for turn in reversed(range(copies)):
            rows = np.roll(weight, turn, axis=0)
            some = self.op.constant(rows) if scale is None else self.codes(rows, np.roll(scale, turn, axis=0), bits)
            outputs.append(self.op.matmul(given, some, False, True))
        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        compiled = self.ov.Core().compile_model(self.ov.Model(outputs, [given]), DEVICE, settings)
        self.request = compiled.create_infer_request()
        self.run()
        self.how = self.kernel(compiled.get_runtime_model())

    def codes(self, q: np.ndarray, scale: np.ndarray, bits: int) -> Any:
        """The node of a weight [N, K] that OpenVINO keeps in codes and multiplies with its scales."""
        groups = [len(q), scale.shape[1], q.shape[1] // scale.shape[1]]  # [N, G, K // G]
        flat = np.ascontiguousarray(q).reshape(-1)
        if bits == 4:
            nibbles = flat.view(np.uint8) & 15
            packed = nibbles[0::2] | nibbles[1::2] << 4  # the first code of a byte in its lower half
            self.held.append(packed)  # which the tensor only points at
            constant = self.ov.op.Constant(self.ov.Tensor(packed, self.ov.Shape(groups), self.ov.Type.i4))
        else:
            constant = self.ov.op.Constant(flat.reshape(groups))
        scales = self.op.constant(np.ascontiguousarray(scale, np.float16)[:, :, None])
        weight = self.op.multiply(self.op.convert(constant, "f16"), scales)
        return self.op.convert(self.op.reshape(weight, self.op.constant([*q.shape]), False), "f32")

    @staticmethod
    def kernel(model: Any) -> str:
        """Its name of the code that multiplies: "brgemm_avx512_amx_bf16"."""
        infos = [op.get_rt_info() for op in model.get_ops()]
        names = [i["primitiveType"].astype(str) for i in infos if i["layerType"].astype(str) == "FullyConnected"]
        return ", ".join(dict.fromkeys(names)) or "not named"

    def run(self) -> None:
        self.results = self.request.infer({0: self.x}, share_inputs=True, share_outputs=True)

    def output(self) -> np.ndarray:
        return np.array(self.results[len(self.results) - 1])
