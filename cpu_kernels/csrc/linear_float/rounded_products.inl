// The products of weights that are multiplied as bfloat16, over `Bf16`, `this_isa` and `pair_multiple` of the region.
#ifndef QK_LINEAR_FLOAT_KERNELS
#error "linear_float/rounded_products.inl: include linear_float/rounded_f16.inl before this file"
#endif

Isa multiply_bf16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Bf16>(weight, begin, end, x, Stored<Bf16>{target});
    return this_isa;
}

Isa multiply_f16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_rounded<Bf16, pair_multiple>(weight, begin, end, x, target);
    return this_isa;
}
