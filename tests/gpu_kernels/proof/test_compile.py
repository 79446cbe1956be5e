"""Every kernel, dtype and architecture becomes machine code, without a GPU."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.driver import driver

from gpu_kernels.attention.configs import SHARED_BYTES
from gpu_kernels.proof.compile import ARCHITECTURES, compile_launch, launches_of, resource_usage, source
from gpu_kernels.proof.problems import all_ops, problems_of

ELF = b"\x7fELF"
ops = pytest.mark.parametrize("op", all_ops())
OTHERS = pytest.mark.exhaustive(
    "minutes of compilation; every run compiles each kernel once, and these share its source"
)
TARGETS = [
    pytest.param(90, True, id="sm_90-once"),
    *(pytest.param(arch, False, id=f"sm_{arch}", marks=OTHERS) for arch in ARCHITECTURES),
]


def one_a_signature(problems, arch):
    """The problems' launches, one for each kernel and combination of pointer types."""
    found = {}
    for launch in launches_of(problems, arch):
        pointers = [str(getattr(value, "dtype", value is None)) for value in launch.arguments.values()]
        found.setdefault((launch.kernel.fn.__qualname__, *pointers), launch)
    return found


def one_a_kernel(launches):
    """The first signature of each kernel."""
    first = {}
    for signature in launches:
        first.setdefault(signature[0], signature)
    return {signature: launches[signature] for signature in first.values()}


# Strides that 32 bits may multiply: within a page (_kt, _vt, _ct, _st), a row of a block table (_tp), the scales of a
# row or column of blocks (_qb, _wb), which are fewer than the features, of heads (_scale, 0 or 1).
WITHIN = {"stride_kt", "stride_vt", "stride_ct", "stride_st", "stride_tp", "stride_qb", "stride_wb", "stride_scale"}


def narrow_strides(ttir):
    """Strides that take part in a product of 32 bits, which pages or tokens past 2**31 elements overflow."""
    narrow = r"arith\.muli [^\n]*%(stride_\w+)\b[^\n]* : i32|tt\.splat %(stride_\w+) : i32"
    return {name for names in re.findall(narrow, ttir) for name in names if name} - WITHIN


def test_narrow_strides_are_seen():
    assert narrow_strides("%1 = arith.muli %0, %stride_qh : i32 loc(#loc1)\n") == {"stride_qh"}
    assert narrow_strides("%1 = tt.splat %stride_qh : i32 -> tensor<16xi32> loc(#loc1)\n") == {"stride_qh"}
    assert not narrow_strides("%1 = arith.extsi %stride_qh : i32 to i64 loc(#loc1)\n")


# Bytes per thread: over 4 warps MLA decode keeps some addresses in local memory, which its loop reads and never writes.
SPILLED = {"mla_decode": 64}
if triton.__version__.startswith("3.6."):  # of the GPU machine that measured; it keeps a few words more
    SPILLED = {"mla_decode": 104, "mla_prefill": 8, "paged_decode": 8, "paged_prefill": 24}


@pytest.mark.parametrize("arch, once", TARGETS)
@ops
def test_every_op_compiles_without_spills(op, arch, once, tmp_path):
    """A cubin, which spills nothing if it is timed; an op may refuse an architecture, sm_90 apart.

    once   one launch per kernel, of those that are timed if there are any; otherwise every combination of types
    """
    timed = one_a_signature([problem for problem in problems_of(op) if problem.is_timed], arch)
    assert timed or arch != 90
    launches = timed | one_a_signature(problems_of(op), arch) | timed
    launches = one_a_kernel(launches) if once else launches
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # LLVM and the assembler leave Python to the others
        every = list(pool.map(partial(compile_launch, arch=arch), launches.values()))
    for signature, compiled in zip(launches, every, strict=True):
        assert compiled.asm["cubin"].startswith(ELF)
        assert compiled.metadata.shared <= SHARED_BYTES[arch], signature  # past it a launch fails, not the compiler
        assert not narrow_strides(compiled.asm["ttir"]), signature
        usage = resource_usage(compiled.asm["cubin"], tmp_path)
        assert signature not in timed or usage["STACK"] + usage["LOCAL"] <= SPILLED.get(op, 0), f"{signature}: {usage}"


@ops
def test_kernels_are_not_interpreted_here(op):
    assert all(isinstance(launch.kernel, triton.JITFunction) for launch in launches_of(problems_of(op), 90))


class PretendedDriver:
    """As much of a GPU as Triton's launcher asks for before it compiles."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


@ops
def test_compiled_ahead_matches_the_lookup_of_a_launch(op, monkeypatch):
    """The same source and options, so a kernel compiled ahead is found in the cache."""
    monkeypatch.setattr(driver, "_active", PretendedDriver())
    launch = launches_of(problems_of(op), 90)[0]
    asked = {}

    def compile_instead(src, target, options, **_):
        asked.update(source=src.hash(), options=options)
        raise InterruptedError

    launch.kernel.device_caches[0]  # makes the binder, which sets `compile`
    monkeypatch.setattr(launch.kernel, "compile", compile_instead)
    arguments = {
        name: torch.empty(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value
        for name, value in launch.arguments.items()
    }
    with pytest.raises(InterruptedError):
        launch.kernel.run(grid=launch.grid, warmup=True, **arguments, **launch.options)
    launch.kernel.device_caches.clear()
    ahead = make_backend(GPUTarget("cuda", 90, 32)).parse_options(dict(launch.options)).__dict__
    assert asked == {"source": source(launch, 90).hash(), "options": ahead}
