"""Rows of the fused steps in dispatch.py's table."""

IMPLEMENTATIONS: dict[tuple[str, str], dict[str, str]] = {
    ("quantize_per_token", "cuda"): {
        "triton": "gpu_kernels.fused.quantize_per_token_triton:quantize_per_token_triton",
        "reference": "gpu_kernels.fused.quantize_per_token:quantize_per_token_reference",
    },
    ("quantize_per_token", "cpu"): {
        "reference": "gpu_kernels.fused.quantize_per_token:quantize_per_token_reference",
        "triton": "gpu_kernels.fused.quantize_per_token_triton:quantize_per_token_triton",
    },
    ("add_rmsnorm", "cuda"): {
        "triton": "gpu_kernels.fused.add_rmsnorm_triton:add_rmsnorm_triton",
        "reference": "gpu_kernels.fused.add_rmsnorm:add_rmsnorm_reference",
    },
    ("add_rmsnorm", "cpu"): {
        "reference": "gpu_kernels.fused.add_rmsnorm:add_rmsnorm_reference",
        "triton": "gpu_kernels.fused.add_rmsnorm_triton:add_rmsnorm_triton",
    },
    ("silu_mul", "cuda"): {
        "triton": "gpu_kernels.fused.silu_mul_triton:silu_mul_triton",
        "reference": "gpu_kernels.fused.silu_mul:silu_mul_reference",
    },
    ("silu_mul", "cpu"): {
        "reference": "gpu_kernels.fused.silu_mul:silu_mul_reference",
        "triton": "gpu_kernels.fused.silu_mul_triton:silu_mul_triton",
    },
    ("rope_cache", "cuda"): {
        "triton": "gpu_kernels.fused.rope_cache_triton:rope_cache_triton",
        "reference": "gpu_kernels.fused.rope_cache:rope_cache_reference",
    },
    ("rope_cache", "cpu"): {
        "reference": "gpu_kernels.fused.rope_cache:rope_cache_reference",
        "triton": "gpu_kernels.fused.rope_cache_triton:rope_cache_triton",
    },
    ("mla_cache", "cuda"): {
        "triton": "gpu_kernels.fused.mla_cache_triton:mla_cache_triton",
        "reference": "gpu_kernels.fused.mla_cache:mla_cache_reference",
    },
    ("mla_cache", "cpu"): {
        "reference": "gpu_kernels.fused.mla_cache:mla_cache_reference",
        "triton": "gpu_kernels.fused.mla_cache_triton:mla_cache_triton",
    },
    ("sample", "cuda"): {
        "triton": "gpu_kernels.fused.sample_triton:sample_triton",
        "reference": "gpu_kernels.fused.sample:sample_reference",
    },
    ("sample", "cpu"): {
        "reference": "gpu_kernels.fused.sample:sample_reference",
        "triton": "gpu_kernels.fused.sample_triton:sample_triton",
    },
    ("compact", "cuda"): {
        "triton": "gpu_kernels.fused.compact_triton:compact_triton",
        "reference": "gpu_kernels.fused.compact:compact_reference",
    },
    ("compact", "cpu"): {
        "reference": "gpu_kernels.fused.compact:compact_reference",
        "triton": "gpu_kernels.fused.compact_triton:compact_triton",
    },
}
