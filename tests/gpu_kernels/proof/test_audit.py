"""The kept table of the machine code, and the parts that read it."""

import pytest
import triton

from gpu_kernels.proof import audit
from gpu_kernels.proof.audit import bound, cycles, matrix_ops
from gpu_kernels.proof.machine_code import Instruction, machine_code
from gpu_kernels.proof.problems import all_ops, problems_of

SAMPLE = ("w8a8_gemm", "paged_decode")
OTHERS = pytest.mark.exhaustive("minutes of compilation; every run has the first launch of a product and of attention")
same_triton = pytest.mark.skipif(
    audit.made_with() != triton.__version__,
    reason=f"AUDIT.md is of Triton {audit.made_with() or None}; write it again: python -m gpu_kernels.proof.audit",
)
TEXT = """
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_0:
        /*0010*/                   LDGSTS.E.BYPASS.128 [R3], desc[UR4][R2.64] ;
.L_x_1:
        /*0020*/               @P1 SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R5], R6 ;
        /*0030*/              @!P1 BRA `(.L_x_1) ;
        /*0040*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0050*/                   F2FP.BF16.F32.PACK_AB R4, R5, R4 ;
        /*0060*/               @P0 BRA `(.L_x_0) ;
        /*0070*/                   EXIT ;
.L_x_2:
        /*0080*/                   BRA `(.L_x_2);
"""


def test_the_loop_that_works_is_read():
    """Not the wait in it, and not the endless branch behind the end."""
    code = machine_code(TEXT)
    assert len(code.instructions) == 9
    assert [one.kind for one in code.loop] == ["LDGSTS", "SYNCS", "BRA", "HMMA", "F2FP", "BRA"]
    assert code.matrix() == {"HMMA": 1}
    assert audit.conversions(code) == f"{1000 * 32 / 4096:.1f}"


def test_a_kernel_without_a_loop_is_read_whole():
    code = machine_code(TEXT.replace("@P0 BRA `(.L_x_0)", "NOP"))
    assert len(code.loop) == len(code.instructions) and audit.loads(code, 16) == 1


@pytest.mark.parametrize(
    "name, operations",
    [
        ("HMMA.16816.F32.BF16", 2 * 16 * 8 * 16),
        ("IMMA.16832.S8.S8.SAT", 2 * 16 * 8 * 32),
        ("HGMMA.64x128x16.F32.BF16", 2 * 64 * 128 * 16 // 4),
        ("FFMA", 0),
    ],
)
def test_matrix_ops(name, operations):
    assert matrix_ops(Instruction(name, "")) == operations


def test_bound_is_the_busiest_unit_of_a_loop():
    """512 bytes per warp last 27.5 cycles of the memory; eight conversions four, and one instruction a quarter."""
    load, convert = Instruction("LDG.E.128", ""), Instruction("F2F.BF16.F16", "")
    code = machine_code("")
    code.loop.extend([load, *[convert] * 8])
    assert cycles(code)["conversions"] == 4 and cycles(code)["issue"] == 9 / 4
    assert bound(code, is_bandwidth=True)[0] == 1.0
    code.loop.extend([convert] * 102)
    share, unit = bound(code, is_bandwidth=True)
    assert share == pytest.approx(512 / 18.6 / 55) and unit.startswith("conversions")


def test_programs_per_multiprocessor_follow_from_registers_and_memory():
    """A multiprocessor has 65,536 registers, 228 KB and 64 warps."""
    assert audit.programs(168, 4, 0) == 3 and audit.programs(32, 4, 100 * 1024) == 2 and audit.programs(16, 8, 0) == 8


@same_triton
@pytest.mark.parametrize("op", SAMPLE)
def test_first_launches_are_as_kept(op):
    """A Triton that loses wgmma or wide loads changes the row."""
    kept = audit.FILE.read_text().splitlines()
    assert audit.line(audit.audited(problems_of(op)[:1])[0]) in kept


@OTHERS
@same_triton
@pytest.mark.parametrize("op", all_ops())
def test_all_launches_are_as_kept(op):
    kept = [row for row in audit.FILE.read_text().splitlines() if row.startswith(f"| `{op}` |")]
    assert audit.table(problems_of(op)) == kept
