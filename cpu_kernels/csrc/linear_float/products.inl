// The three products, over `F32`, `F16`, `Bf16` and `this_isa` of the region that includes this after them.
#ifndef QK_LINEAR_FLOAT_KERNELS
#error "linear_float/products.inl: include linear_float/kernels.inl before this file"
#endif

template <class Dot>
static Isa multiply(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Dot>(weight, begin, end, x, Stored<Dot>{target});
    return this_isa;
}

Isa multiply_bf16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    return multiply<Bf16>(weight, begin, end, x, target);
}

Isa multiply_f16(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    return multiply<F16>(weight, begin, end, x, target);
}

Isa multiply_f32(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    return multiply<F32>(weight, begin, end, x, target);
}
