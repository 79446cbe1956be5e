"""C++ kernels for the CPU, chosen at run time by the features of this machine.

QBENCH_ISA=scalar|avx2|avx_vnni|avx512|avx512_vnni|avx512_bf16|amx: nothing above this instruction set is chosen,
and a name that this machine cannot do is a RuntimeError. `isa=` of a call names one implementation exactly.
QBENCH_CPU=scalar|avx2|avx_vnni|avx512|avx512_vnni|avx512_bf16|amx: a pretended processor. Instruction sets above it
count as absent for the whole process, also for `isa=`; a name that the machine does not reach changes nothing.
QBENCH_LINEAR_PATH=direct|tile|bf16: which way PackedLinear multiplies, where the measured crossover
(csrc/block_formats) is not wanted; `path=` of a call overrides it. bf16 needs AMX: from 28 tokens on, codes in blocks
and groups are unpacked to bfloat16 there, and activations rounded to it (linear.linear_bf16_ref).
QBENCH_F16_COMPUTE=float32: f16 weights, keys and values are multiplied exactly for many tokens, too, instead of in
bfloat16.
QBENCH_K_QUANT_COMPUTE=exact|int8x256: whether K-quants are multiplied as stored for 64 tokens and more, too, or are
rounded to int8 with one scale for 256 inputs of a row (linear.reround_ref); by default all are rounded but Q6_K, to
whose own error that adds too much. A prompt's products then differ from those of single tokens by that. By default
AVX2 multiplies all of them as stored, which is faster there. Weights of a trellis code are rounded to int8 with one
scale per row in the same cases, for 8 tokens and more and on every instruction set. Either value also keeps both
kinds from the path bf16.
Weights packed with exact=True are multiplied as stored where neither of the two variables is set. A KVStore with
exact=True is read without tiles, whatever QBENCH_F16_COMPUTE says, and so are latents by attend_latents and MlaHeads.
"""

from cpu_kernels._ext import (
    EXPERT_TOKENS,
    LINK_CHANNEL_BYTES,
    MOST_KEPT_BYTES,
    NET_TOKENS,
    ChosenBlocks,
    DecoderLayer,
    KVStore,
    LinearGroup,
    MlaHeads,
    MlaLayer,
    PackedExperts,
    PackedLinear,
    PackedLlmInt8,
    Router,
    SharedLink,
    attend_latents,
    attention_step,
    chosen_isa,
    clear_switch_points,
    emulated_features,
    features,
    feed_forward,
    get_num_threads,
    has_kv_store,
    has_packed_linear,
    measure_bf16_peak,
    measure_fp32_peak,
    measure_int8_peak,
    measure_int16_peak,
    measure_read_bandwidth,
    op_table,
    packed_linear_bytes,
    run_layers,
    run_mla_layers,
    set_num_threads,
    set_switch_points,
)
from cpu_kernels.decode import DECODED_FORMATS, decode
from cpu_kernels.encode import ENCODED_FORMATS, encode
from cpu_kernels.fused import rms_norm, rms_norm_ref, silu_mul, silu_mul_ref
from cpu_kernels.linear import linear_ref

__all__ = [
    "DECODED_FORMATS",
    "ENCODED_FORMATS",
    "EXPERT_TOKENS",
    "LINK_CHANNEL_BYTES",
    "MOST_KEPT_BYTES",
    "NET_TOKENS",
    "ChosenBlocks",
    "DecoderLayer",
    "KVStore",
    "LinearGroup",
    "MlaHeads",
    "MlaLayer",
    "PackedExperts",
    "PackedLinear",
    "PackedLlmInt8",
    "Router",
    "SharedLink",
    "attend_latents",
    "attention_step",
    "chosen_isa",
    "clear_switch_points",
    "decode",
    "emulated_features",
    "encode",
    "features",
    "feed_forward",
    "get_num_threads",
    "has_kv_store",
    "has_packed_linear",
    "linear_ref",
    "measure_bf16_peak",
    "measure_fp32_peak",
    "measure_int8_peak",
    "measure_int16_peak",
    "measure_read_bandwidth",
    "op_table",
    "packed_linear_bytes",
    "rms_norm",
    "rms_norm_ref",
    "run_layers",
    "run_mla_layers",
    "set_num_threads",
    "set_switch_points",
    "silu_mul",
    "silu_mul_ref",
]
