"""The PTX that makes floats of codes, which the interpreter cannot run: executed here, an instruction at a time."""

import re
import struct

import pytest
import torch
import triton.language as tl

from gpu_kernels.gemm.words_triton import code_offset, codes_asm, codes_of_6_bits_asm

DTYPES = {tl.float16: torch.float16, tl.bfloat16: torch.bfloat16}
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def as_float(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def as_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def lop3(a, b, c, table):
    """Bit i of the result is the table's bit 4 * a[i] + 2 * b[i] + c[i]."""
    return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))


def prmt(a, b, selector):
    """Byte j of the result is the byte of b:a that the selector's digit j names."""
    return sum(((b << 32 | a) >> 8 * (selector >> 4 * j & 7) & 0xFF) << 8 * j for j in range(4))


def bf16x2(high, low):
    halves = torch.tensor([as_float(low), as_float(high)]).bfloat16().view(torch.int16)
    return (int(halves[1]) & 0xFFFF) << 16 | int(halves[0]) & 0xFFFF


EXECUTE = {
    "mov.b32": lambda a: a,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "shl.b32": lambda a, b: a << b & 0xFFFFFFFF,
    "shr.u32": lambda a, b: a >> b,
    "lop3.b32": lop3,
    "prmt.b32": prmt,
    "sub.f32": lambda a, b: as_bits(as_float(a) - as_float(b)),
    "cvt.rn.bf16x2.f32": bf16x2,
}


def execute(asm, **registers):
    """The two halves of register $0, after PTX that starts from these registers, $ left out of their names."""
    registers = {f"${name[1:]}": value for name, value in registers.items()}

    def value(operand):
        if operand in registers:
            return registers[operand]
        return int(operand[2:], 16) if operand.startswith("0f") else int(operand, 0)

    for statement in filter(None, (part.strip() for part in re.sub(r"[{}]", " ", asm).split(";"))):
        name, operands = statement.split(maxsplit=1)
        if name == ".reg":
            continue
        target, *sources = (operand.strip() for operand in operands.split(","))
        registers[target] = EXECUTE[name](*map(value, sources))
    return registers["$0"] & 0xFFFF, registers["$0"] >> 16


def floats(halves, dtype):
    signed = torch.tensor([half - 65536 if half >= 32768 else half for half in halves], dtype=torch.int16)
    return signed.view(DTYPES[dtype]).tolist()


@dtypes
@pytest.mark.parametrize("bits, plane", [(4, 0), (4, 1), (4, 2), (4, 3), (8, 0), (8, 1)])
def test_every_code_is_unpacked_next_to_any_neighbour(dtype, bits, plane):
    """Every code in either half, next to neighbours of all ones and of all zeros."""
    offset, zero = code_offset(dtype, bits), 1 << bits - 1
    for code in range(1 << bits):
        for around in (0, 0xFFFF):
            word = around & ~((1 << bits) - 1 << bits * plane) & 0xFFFF | code << bits * plane
            other = around ^ 0xFFFF
            other_code = other & (1 << bits) - 1
            low, high = floats(execute(codes_asm(dtype, bits, plane), r1=other << 16 | word), dtype)
            assert (low - offset, high - offset) == (code - zero, other_code - zero)
            low, high = floats(execute(codes_asm(dtype, bits, plane), r1=word << 16 | other), dtype)
            assert (low - offset, high - offset) == (other_code - zero, code - zero)


@dtypes
@pytest.mark.parametrize("plane", range(4))
def test_codes_of_6_bits(dtype, plane):
    """Bits that are 0 are code_offset - 8, as nothing is taken off for them."""
    bits_0 = code_offset(dtype, 4) - 8
    for code in range(64):
        low_word, high_word = (code & 15) << 4 * plane, code >> 4 << 2 * plane
        other_low, other_high = 0xFFFF ^ 15 << 4 * plane, 0xFF ^ 3 << 2 * plane
        words = {"r1": other_low << 16 | low_word, "r2": other_high << 16 | high_word}
        assert floats(execute(codes_of_6_bits_asm(dtype, plane), **words), dtype) == [bits_0 + code, bits_0]
        words = {"r1": low_word << 16 | other_low, "r2": high_word << 16 | other_high}
        assert floats(execute(codes_of_6_bits_asm(dtype, plane), **words), dtype) == [bits_0, bits_0 + code]


def test_execute_can_fail():
    assert lop3(0b1100, 0b1010, 0b0001, 0xEA) == 0b1001
    assert prmt(0x44332211, 0x4B000000, 0x7440) == 0x4B000011
    assert execute("{ .reg .b32 t; shr.u32 t, $1, 4; or.b32 $0, t, 0x10000; }", r1=0x35) == (3, 1)
    with pytest.raises(KeyError):
        execute("add.u32 $0, $1, 1;", r1=0)
