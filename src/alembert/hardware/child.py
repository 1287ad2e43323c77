"""The program of a throw-away process: try numeric types, measure them, print a JSON line each.

Started by path, `python -P child.py LIBRARY THREADS TYPE...`, and free of alembert imports, so that the limits under
test are exactly those in its environment. It may die at any line: `{"begin": TYPE}` is printed first, so that the
parent knows which type was fatal. Matrices grow only while a step stays cheap, so a type that is a hundred times
slower than the others costs little.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

MATRIX_SIZES = (64, 256, 1024)
MAX_SECONDS = 0.25
MAX_CALLS = 8

Call = Callable[[], object]


def measure_peak(call_of_size: Callable[[int], Call], matmuls: int = 1) -> float:
    """Measure GFLOP/s of a call that multiplies square matrices, at the largest size that stays quick."""
    best = 0.0
    for size in MATRIX_SIZES:
        seconds = _fastest(call_of_size(size))
        best = max(best, matmuls * 2 * size**3 / seconds / 1e9)
        if seconds * 4**3 > 2 * MAX_SECONDS:
            break
    return best


def _fastest(call: Call) -> float:
    call()
    times: list[float] = []
    # The fastest of several, because other processes can only make a call slower.
    while len(times) < MAX_CALLS and sum(times) < MAX_SECONDS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return max(min(times), 1e-9)


def make_torch_forward(dtype: str) -> Callable[[int], Call]:
    """Make linear layers of a given size, without gradients."""
    import torch
    from torch.nn.functional import linear

    def of_size(size: int) -> Call:
        x, weight = torch.randn(2, size, size).to(getattr(torch, dtype))
        return lambda: linear(x, weight)

    def of_size_int8(size: int) -> Call:
        weight = torch.quantize_per_tensor(torch.randn(size, size), 0.05, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(weight, None)
        x = torch.randn(size, size)
        return lambda: torch.ops.quantized.linear_dynamic(x, packed)

    return of_size_int8 if dtype == "int8" else of_size


def _make_torch_training(dtype: str) -> Callable[[int], Call]:
    import torch
    from torch.nn.functional import linear

    def of_size(size: int) -> Call:
        x = torch.randn(size, size).to(getattr(torch, dtype)).requires_grad_()
        weight = x.detach().clone().requires_grad_()
        return lambda: torch.autograd.grad(linear(x, weight), (x, weight), x.detach())

    return of_size


def _run_encoder_kernels(dtype: str) -> None:
    """Run the kernels an encoder needs beside the linear layer; each may use its own instructions."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    if dtype == "int8":
        torch._int_mm(*torch.ones(2, 64, 64, dtype=torch.int8))
        return
    q = torch.randn(2, 4, 64, 64).to(getattr(torch, dtype)).requires_grad_()
    for result in (scaled_dot_product_attention(q, q, q), torch.bmm(q[0], q[1])):
        torch.autograd.grad(result.sum(), q)


def try_torch(dtype: str, threads: int) -> dict[str, float]:
    """Run one type in torch: forward on one thread and on all, forward and backward on all."""
    import torch

    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    _run_encoder_kernels(dtype)
    speeds = {"one_thread": measure_peak(make_torch_forward(dtype))}
    torch.set_num_threads(threads)
    speeds["all_threads"] = measure_peak(make_torch_forward(dtype))
    if dtype != "int8":
        speeds["training"] = measure_peak(_make_torch_training(dtype), matmuls=3)
    return speeds


def _make_openvino_forward(dtype: str, threads: int) -> Callable[[int], Call]:
    # As in `runtimes`, which this program does not import: OpenVINO must not report its use.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]

    import numpy as np
    import openvino
    from openvino import opset13 as ops

    def quantise(node: Any, levels: int) -> Any:
        low, high = np.float32(-4), np.float32(4)
        return ops.fake_quantize(node, low, high, low, high, levels)

    def of_size(size: int) -> Call:
        matrix = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
        parameter = ops.parameter([size, size], np.float32)
        x, weight = parameter, ops.constant(matrix)
        if dtype == "int8":  # as NNCF writes it: unsigned activations, symmetric weights
            x, weight = quantise(x, 256), quantise(weight, 255)
        product = ops.matmul(x, weight, False, True)
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        model = openvino.Core().compile_model(openvino.Model([product], [parameter], "trial"), "CPU", settings)
        request = model.create_infer_request()
        return lambda: request.infer([matrix])

    return of_size


def try_openvino(dtype: str, threads: int) -> dict[str, float]:
    """Run one type in OpenVINO, on one thread and on all."""
    return {
        "one_thread": measure_peak(_make_openvino_forward(dtype, 1)),
        "all_threads": measure_peak(_make_openvino_forward(dtype, threads)),
    }


# ONNX files are protocol buffers. The package that writes them is not part of the runtime; one product needs few fields.
_FLOAT, _UINT8, _INT8 = 1, 2, 3  # numeric types of TensorProto


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Encode numbered fields: numbers as they are, texts and inner messages with their length."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(_varint(number << 3) + _varint(value))
        else:
            content = value.encode() if isinstance(value, str) else value
            parts.append(_varint(number << 3 | 2) + _varint(len(content)) + content)
    return b"".join(parts)


def _tensor(name: str, kind: int, values: Any) -> bytes:
    return _message(*((1, size) for size in values.shape), (2, kind), (8, name), (9, values.tobytes()))


def _node(operation: str, inputs: str, output: str) -> bytes:
    return _message(*((1, name) for name in inputs.split()), (2, output), (4, operation))


def _matrix(name: str, size: int) -> bytes:
    shape = _message(*2 * [(1, _message((1, size)))])
    return _message((1, name), (2, _message((1, _message((1, _FLOAT), (2, shape))))))


def _product_graph(dtype: str, matrix: Any) -> bytes:
    """Write the product of an input `x` and a square matrix as an ONNX file."""
    import numpy as np

    if dtype == "int8":  # as `compress` writes it: unsigned activations, symmetric weights
        whole = np.clip(matrix * 16, -63, 63).astype(np.int8)
        nodes = [
            _node("QuantizeLinear", "x step middle", "rounded"),
            _node("DequantizeLinear", "rounded step middle", "left"),
            _node("DequantizeLinear", "whole step zero", "right"),
            _node("MatMul", "left right", "y"),
        ]
        tensors = [
            _tensor("whole", _INT8, whole),
            _tensor("step", _FLOAT, np.array(1 / 16, np.float32)),
            _tensor("zero", _INT8, np.array(0, np.int8)),
            _tensor("middle", _UINT8, np.array(128, np.uint8)),
        ]
    else:
        nodes, tensors = [_node("MatMul", "x weight", "y")], [_tensor("weight", _FLOAT, matrix)]
    graph = _message(
        *((1, node) for node in nodes),
        (2, "trial"),
        *((5, tensor) for tensor in tensors),
        (11, _matrix("x", len(matrix))),
        (12, _matrix("y", len(matrix))),
    )
    return _message((1, 8), (7, graph), (8, _message((2, 17))))  # IR version 8, operations of version 17


def _make_onnxruntime_forward(dtype: str, threads: int) -> Callable[[int], Call]:
    import numpy as np
    import onnxruntime

    onnxruntime.disable_telemetry_events()  # as in `runtimes`, which this program does not import

    def of_size(size: int) -> Call:
        matrix = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(
            _product_graph(dtype, matrix), options, providers=["CPUExecutionProvider"]
        )
        return lambda: session.run(None, {"x": matrix})

    return of_size


def try_onnxruntime(dtype: str, threads: int) -> dict[str, float]:
    """Run one type in ONNX Runtime, on one thread and on all."""
    return {
        "one_thread": measure_peak(_make_onnxruntime_forward(dtype, 1)),
        "all_threads": measure_peak(_make_onnxruntime_forward(dtype, threads)),
    }


def _disable_core_dumps() -> None:
    """Keep a death from writing a memory image of gigabytes into the user's folder."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(library: str, threads: int, dtypes: list[str]) -> None:
    """Try each type and print what happened."""
    warnings.simplefilter("ignore")
    _disable_core_dumps()
    attempt = {"torch": try_torch, "openvino": try_openvino, "onnxruntime": try_onnxruntime}[library]
    for dtype in dtypes:
        print(json.dumps({"begin": dtype}), flush=True)
        try:
            answer: dict[str, Any] = {"type": dtype, **attempt(dtype, threads)}
        except Exception as problem:  # whatever the library raises is the answer
            answer = {"type": dtype, "error": f"{type(problem).__name__}: {problem}".splitlines()[0][:200]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
