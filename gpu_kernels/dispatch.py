"""Which code runs an op on a device. The table names it, and nothing runs that it does not name."""

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, TypeVar

from torch import Tensor


def _rows(family: str, *ops: str, **files: str) -> dict[tuple[str, str], dict[str, str]]:
    """The rows of a family: (op, device type) -> {implementation: "module:function"}, the default first.

    files  of the ops that share code: op -> the stem of its files and functions, if that is not the op's name
    """
    rows = {}
    for op in ops:
        stem = files.get(op, op)
        triton = f"gpu_kernels.{family}.{stem}_triton:{stem}_triton"
        reference = f"gpu_kernels.{family}.{stem}:{stem}_reference"
        rows[op, "cuda"] = {"triton": triton, "reference": reference}
        rows[op, "cpu"] = {"reference": reference, "triton": triton}
    return rows


GEMM = (
    "w8a8_gemm",
    "w4a16_gemm",
    "w8a16_gemm",
    "llm_int8_gemm",
    "fp8_gemm",
    "gguf_gemm",
    "dense_gemv",
    "grouped_moe_gemm",
)
FUSED = ("quantize_per_token", "add_rmsnorm", "silu_mul", "rope_cache", "mla_cache", "sample", "compact")
ATTENTION = ("mla_decode", "paged_decode", "paged_prefill", "mla_prefill", "block_prefill", "key_mass")
# Each family of kernels is a package, whose <op>_problems.py holds the problems that prove an op.
FAMILIES = {
    "gemm": _rows("gemm", *GEMM, w4a16_gemm="weight_only_gemm", w8a16_gemm="weight_only_gemm"),
    "fused": _rows("fused", *FUSED),
    "attention": _rows("attention", *ATTENTION),
}

# (op, device type) -> {implementation: "module:function"}. The first of a row is the default; the others run when
# they are asked for by name. Every function writes its result into buffers that the public function has allocated.
# On a CPU "triton" is the interpreter (TRITON_INTERPRET=1): it proves a kernel right and is slow beyond use.
IMPLEMENTATIONS: dict[tuple[str, str], dict[str, str]] = {
    key: row for rows in FAMILIES.values() for key, row in rows.items()
}

Results = TypeVar("Results", bound=Tensor | tuple[Tensor | None, ...], covariant=True)


class Operands(Protocol[Results]):
    """The part of every op's `Operands` that `results_of` needs."""

    def empty(self) -> Results:
        """The op's results, to be written."""
        ...


_forced: dict[str, str] = {}  # "impl": the name given to `force`


def force(impl: str | None) -> None:
    """Every op of this process runs this implementation from now on, unless its call names one; None: the table's."""
    _forced.clear()
    if impl is not None:
        _forced["impl"] = impl


def implementation_name(op: str, device_type: str, impl: str | None = None) -> str:
    """The implementation that runs `op` on this device type: `impl` if it is given, else forced, else the default.

    raises  NotImplementedError if the table has no such row or no such entry; the message lists its entries
    """
    row = IMPLEMENTATIONS.get((op, device_type))
    if row is None:
        devices = sorted(device for name, device in IMPLEMENTATIONS if name == op)
        raise NotImplementedError(f"{op} on {device_type!r}: got no implementation, expected a device of {devices}")
    impl = impl or _forced.get("impl")
    if impl is not None and impl not in row:
        raise NotImplementedError(f"{op} on {device_type}: got impl {impl!r}, expected one of {list(row)}")
    return impl or next(iter(row))


def implementation(op: str, device_type: str, impl: str | None = None) -> Callable[..., None]:
    """The function that `implementation_name` names.

    raises  NotImplementedError as there; RuntimeError if it needs Triton and Triton is not installed
    """
    name = implementation_name(op, device_type, impl)
    module, function = IMPLEMENTATIONS[op, device_type][name].split(":")
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        message = f"{op} on {device_type}: triton is not installed; pip install triton, or ask for impl='reference'"
        raise RuntimeError(message) from error


def results_of(op: str, operands: Operands[Results], impl: str | None) -> Results:
    """The op's results, by the implementation that `implementation_name` names. Nothing runs for empty results.

    raises  as `implementation`, and as the implementation itself
    """
    results = operands.empty()
    buffers = results if isinstance(results, tuple) else (results,)
    first = buffers[0]
    assert first is not None  # only later results are optional
    run = implementation(op, first.device.type, impl)
    if first.numel():
        run(operands, *buffers)
    return results
