from gpu_kernels.contenders import contenders, operands, quantizer


def test_counted_bytes_are_the_tensors_bytes():
    M, N, K = 17, 24, 32
    s = operands(M, N, K, "cpu")
    reads = {
        "w8a8_gemm": ("x_q", "x_scale", "weight_q", "weight_scale", "y"),
        "int8_gemm": ("x_q", "weight_q", "acc"),
        "bf16_gemm": ("x", "weight", "y"),
        "quantize_per_token": ("x", "codes", "codes_scale"),
    }
    for way in [*contenders(M, N, K, 90), quantizer(M, K)]:
        assert way.num_bytes == sum(s[name].nbytes for name in reads[way.op])
