"""The instructions of the built extension: each kernel has its own, and no other function needs them."""

import platform
import re
import shutil
import subprocess
from collections import Counter, defaultdict

import pytest
from support.attention import FLOAT8, FORMATS

from cpu_kernels import _ext, features
from cpu_kernels.attention import multiplies_in

ISAS = ("scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")
NAMESPACE = re.compile(rf"\bqk::(?:\w+::)*?({'|'.join(ISAS)})::")
TILE = r"tdp\w+|tile\w+|ldtilecfg|sttilecfg"

# Instructions that the functions of an instruction set must not have, as mnemonics or operands. Scalar functions, and
# those in other namespaces, run on every x86-64: nothing with a VEX or EVEX prefix.
FORBIDDEN = {
    "scalar": rf"v\w+|{TILE}",
    "avx2": rf"%zmm\d+|%k[1-7]|vpdp\w+|vdpbf16ps|{TILE}",
    "avx_vnni": rf"%zmm\d+|%k[1-7]|vpdpw\w+|vdpbf16ps|{TILE}",
    "avx512": rf"vpdp\w+|vdpbf16ps|{TILE}",
    "avx512_vnni": rf"vdpbf16ps|{TILE}",
    "avx512_bf16": TILE,
    "amx": r"\b$",  # nothing
}

# Functions that multiply, all of them, and the instruction that they are there for
EXPECTED = [
    pytest.param("roofline::avx512_vnni::int8_chains", "vpdpbusd", id="peak-vnni"),
    pytest.param("roofline::avx_vnni::int8_chains", "vpdpbusd", id="peak-avx-vnni"),
    pytest.param("run_rounds<qk::roofline::amx::int8_chains", "tdpbsud", id="peak-amx"),
    pytest.param("roofline::avx512_vnni::int16_chains", "vpdpwssd", id="peak-words"),
    pytest.param("roofline::avx512::int16_chains", "vpmaddwd", id="peak-words-512"),
    pytest.param("roofline::avx2::int16_chains", "vpmaddwd", id="peak-words-256"),
    pytest.param("roofline::avx512::int8_chains", "vpmaddubsw", id="peak-bytes-512"),
    pytest.param("roofline::avx2::int8_chains", "vpmaddubsw", id="peak-bytes-256"),
    pytest.param("roofline::avx512_bf16::bf16_chains", "vdpbf16ps", id="peak-bf16"),
    pytest.param("run_rounds<qk::roofline::amx::bf16_chains", "tdpbf16ps", id="peak-amx-bf16"),
    pytest.param(r"linear::avx512_vnni::.*?\bmultiply_(direct|spans|steps)<", "vpdpbusd", id="linear-vnni"),
    pytest.param(r"linear::avx_vnni::.*?\bmultiply_(direct|spans|steps)<", "vpdpbusd", id="linear-avx-vnni"),
    pytest.param(r"linear_trellis::avx512_vnni::.*?\bmultiply_direct<", "vpdpbusd", id="trellis-vnni"),
    pytest.param(r"linear_trellis::avx_vnni::.*?\bmultiply_direct<", "vpdpbusd", id="trellis-avx-vnni"),
    pytest.param(r"linear::amx::.*?\bmultiply<.*\)$", "tdpbf16ps", id="linear-amx"),
    pytest.param("linear_int8::avx512_vnni::multiply_tile<", "vpdpbusd", id="int8-vnni"),
    pytest.param("linear_int8::avx_vnni::multiply_tile<", "vpdpbusd", id="int8-avx-vnni"),
    pytest.param(r"linear_int8::amx::multiply\(", "tdpbsud", id="int8-amx"),
    pytest.param("linear_float::avx512_bf16::multiply_tile<", "vdpbf16ps", id="float-bf16"),
    pytest.param(r"linear_float::amx::multiply_(bf16|f16)\(", "tdpbf16ps", id="float-amx"),
    pytest.param("gram::avx512_bf16::.*?add_tile", "vdpbf16ps", id="gram-bf16"),
    pytest.param(
        r"attention::avx512_vnni::(score|sum_words)<[\w:]+::Int[48]\b",
        "vpdpwssd",
        id="attention-vnni",
    ),
    pytest.param(
        r"attention::avx512_bf16::(score|sum_words)<[\w:]+::Float8<",
        "vdpbf16ps",
        id="attention-bf16",
    ),
]

# (instruction set, arithmetic of a format): the lower set whose kernels it runs, as it has nothing to add to them
BORROWED = {
    ("avx512_vnni", "fp32"): "avx512",
    ("avx512_bf16", "fp32"): "avx512",
    ("avx512_bf16", "int16"): "avx512_vnni",
}

# The multiplications of a peak, whose rate is the processor's only if all chains are there, in registers
CHAINS = {
    "scalar": (16, {"int8": "pmullw", "fp32": "mulps"}),
    "avx2": (12, {"int8": "vpmaddubsw", "int16": "vpmaddwd", "fp32": r"vfmadd\w+ps"}),
    "avx_vnni": (12, {"int8": "vpdpbusd"}),
    "avx512": (16, {"int8": "vpmaddubsw", "int16": "vpmaddwd", "fp32": r"vfmadd\w+ps"}),
    "avx512_vnni": (16, {"int8": "vpdpbusd", "int16": "vpdpwssd"}),
    "avx512_bf16": (16, {"bf16": "vdpbf16ps"}),
}

SPILL = "a vector register that the stack has to hold"

# Instructions that multiply pairs, by their arithmetic in the roofline; fp32 has no such instruction.
PAIRS = {"int16": "vpdpwssd", "bf16": "vdpbf16ps"}


@pytest.fixture(scope="module")
def functions() -> dict[str, Counter]:
    """Demangled name -> how often each mnemonic and each wide register occurs in it, and SPILL."""
    if platform.machine() != "x86_64" or not shutil.which("objdump"):
        pytest.skip("needs objdump, and x86-64")
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", _ext.__file__]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found, name = defaultdict(Counter), ""
    for line in listing.splitlines():
        if header := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
            name = header[1]
        elif name:
            words = re.findall(r"%?[a-z]\w*", re.sub("[<#].*", "", line.partition(":")[2]))  # no names of addresses
            found[name].update(word for word in words if not word.startswith("%") or re.match(r"%([xyzt]mm|k)\d", word))
            found[name][SPILL] += bool(re.search(r"%[xyz]mm\d.*\(%r[sb]p", line))
    assert any("qk::" in name for name in found), "the extension has no symbols"
    return found


def isa_of(name: str) -> str:
    match = NAMESPACE.search(name)
    return match[1] if match else "scalar"


@pytest.mark.parametrize("isa", ISAS)
def test_a_function_needs_no_more_than_its_instruction_set(functions, isa):
    forbidden = re.compile(FORBIDDEN[isa])
    mine = {name: counts for name, counts in functions.items() if isa_of(name) == isa}
    for name, counts in mine.items():
        assert not [word for word in counts if forbidden.fullmatch(word)], name


@pytest.mark.parametrize("function, mnemonic", EXPECTED)
def test_a_kernel_has_the_instruction_that_it_is_for(functions, function, mnemonic):
    found = {name: counts[mnemonic] for name, counts in functions.items() if re.search(function, name)}
    assert found, f"no function {function}"
    assert not [name for name, count in found.items() if not count]


@pytest.mark.parametrize("isa", CHAINS)
def test_a_peak_multiplies_only_in_registers(functions, isa):
    """With its sums in memory the peak of AVX2's bytes was half the processor's, and products reached 103 % of it."""
    number, multiplications = CHAINS[isa]
    for arithmetic, mnemonic in multiplications.items():
        name = f"qk::roofline::{isa}::{arithmetic}_chains(long)"
        found = Counter({word: n for word, n in functions[name].items() if re.fullmatch(mnemonic, word)})
        # Clang repeats the loop's body: all chains each time.
        assert found and found.total() % number == 0 and not functions[name][SPILL], name


@pytest.mark.parametrize("isa", ["avx512_vnni", "avx512_bf16"])
@pytest.mark.parametrize("name", FORMATS)
def test_attention_is_counted_by_its_multiplications(functions, monkeypatch, isa, name):
    """A share of the roofline is of the peak of these products: with fp32's, pairs would get twice their true share."""
    if isa not in features():
        pytest.skip(f"this machine has no {isa}")
    monkeypatch.setenv("QBENCH_ISA", isa)
    code = (
        rf"{name.capitalize()}\b" if name not in FLOAT8 else rf"Float8<\(qk::attention::Format\){FORMATS.index(name)}"
    )
    owner = BORROWED.get((isa, multiplies_in(name)), isa)
    kernel = re.compile(rf"attention::{owner}::\w+<qk::attention::{owner}::{code}")
    found = {function: counts for function, counts in functions.items() if kernel.search(function)}
    assert any("::attend_tile<" in function for function in found), kernel.pattern
    counts = sum(found.values(), Counter())
    assert {pairs for pairs, mnemonic in PAIRS.items() if counts[mnemonic]} == {multiplies_in(name)} & PAIRS.keys()


def test_the_check_finds_forbidden_instructions(functions):
    wide = next(counts for name, counts in functions.items() if "roofline::avx512_vnni::int8_chains" in name)
    for isa in ("scalar", "avx2", "avx512"):
        assert any(re.fullmatch(FORBIDDEN[isa], word) for word in wide)
    tiles = next(counts for name, counts in functions.items() if "roofline::amx::int8_chains" in name)
    for isa in ISAS[:-1]:
        assert any(re.fullmatch(FORBIDDEN[isa], word) for word in tiles)
