"""Rows of the GEMMs in dispatch.py's table."""

IMPLEMENTATIONS: dict[tuple[str, str], dict[str, str]] = {
    ("w8a8_gemm", "cuda"): {
        "triton": "gpu_kernels.gemm.w8a8_gemm_triton:w8a8_gemm_triton",
        "reference": "gpu_kernels.gemm.w8a8_gemm:w8a8_gemm_reference",
    },
    ("w8a8_gemm", "cpu"): {
        "reference": "gpu_kernels.gemm.w8a8_gemm:w8a8_gemm_reference",
        "triton": "gpu_kernels.gemm.w8a8_gemm_triton:w8a8_gemm_triton",
    },
    ("w4a16_gemm", "cuda"): {
        "triton": "gpu_kernels.gemm.weight_only_gemm_triton:weight_only_gemm_triton",
        "reference": "gpu_kernels.gemm.weight_only_gemm:weight_only_gemm_reference",
    },
    ("w4a16_gemm", "cpu"): {
        "reference": "gpu_kernels.gemm.weight_only_gemm:weight_only_gemm_reference",
        "triton": "gpu_kernels.gemm.weight_only_gemm_triton:weight_only_gemm_triton",
    },
    ("w8a16_gemm", "cuda"): {
        "triton": "gpu_kernels.gemm.weight_only_gemm_triton:weight_only_gemm_triton",
        "reference": "gpu_kernels.gemm.weight_only_gemm:weight_only_gemm_reference",
    },
    ("w8a16_gemm", "cpu"): {
        "reference": "gpu_kernels.gemm.weight_only_gemm:weight_only_gemm_reference",
        "triton": "gpu_kernels.gemm.weight_only_gemm_triton:weight_only_gemm_triton",
    },
    ("llm_int8_gemm", "cuda"): {
        "triton": "gpu_kernels.gemm.llm_int8_gemm_triton:llm_int8_gemm_triton",
        "reference": "gpu_kernels.gemm.llm_int8_gemm:llm_int8_gemm_reference",
    },
    ("llm_int8_gemm", "cpu"): {
        "reference": "gpu_kernels.gemm.llm_int8_gemm:llm_int8_gemm_reference",
        "triton": "gpu_kernels.gemm.llm_int8_gemm_triton:llm_int8_gemm_triton",
    },
    ("fp8_gemm", "cuda"): {
        "triton": "gpu_kernels.gemm.fp8_gemm_triton:fp8_gemm_triton",
        "reference": "gpu_kernels.gemm.fp8_gemm:fp8_gemm_reference",
    },
    ("fp8_gemm", "cpu"): {
        "reference": "gpu_kernels.gemm.fp8_gemm:fp8_gemm_reference",
        "triton": "gpu_kernels.gemm.fp8_gemm_triton:fp8_gemm_triton",
    },
    ("gguf_gemm", "cuda"): {
        "triton": "gpu_kernels.gemm.gguf_gemm_triton:gguf_gemm_triton",
        "reference": "gpu_kernels.gemm.gguf_gemm:gguf_gemm_reference",
    },
    ("gguf_gemm", "cpu"): {
        "reference": "gpu_kernels.gemm.gguf_gemm:gguf_gemm_reference",
        "triton": "gpu_kernels.gemm.gguf_gemm_triton:gguf_gemm_triton",
    },
    ("dense_gemv", "cuda"): {
        "triton": "gpu_kernels.gemm.dense_gemv_triton:dense_gemv_triton",
        "reference": "gpu_kernels.gemm.dense_gemv:dense_gemv_reference",
    },
    ("dense_gemv", "cpu"): {
        "reference": "gpu_kernels.gemm.dense_gemv:dense_gemv_reference",
        "triton": "gpu_kernels.gemm.dense_gemv_triton:dense_gemv_triton",
    },
    ("grouped_moe_gemm", "cuda"): {
        "triton": "gpu_kernels.gemm.grouped_moe_gemm_triton:grouped_moe_gemm_triton",
        "reference": "gpu_kernels.gemm.grouped_moe_gemm:grouped_moe_gemm_reference",
    },
    ("grouped_moe_gemm", "cpu"): {
        "reference": "gpu_kernels.gemm.grouped_moe_gemm:grouped_moe_gemm_reference",
        "triton": "gpu_kernels.gemm.grouped_moe_gemm_triton:grouped_moe_gemm_triton",
    },
}
