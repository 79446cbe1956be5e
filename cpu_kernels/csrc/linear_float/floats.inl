// The weights that float32 sums: f32, f16 and bf16, over `Lanes`, `f32_shapes` and `bf16_shapes` of the region. Include it
// after simd/half_*.inl.
#ifndef QK_SIMD_HALF
#error "linear_float/floats.inl: include simd/half_*.inl before this file"
#endif

struct F32 : Lanes {
    using Weights = Float;
    using Word = Float;
    static constexpr int vector_bytes = 4 * width;

    static Weights weights(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
    static Word word(const std::byte* p) { return splat(*reinterpret_cast<const float*>(p)); }
    static Sum add(Sum sum, Weights weights, Word word) { return fma(weights, word, {sum}).v; }
    static constexpr auto& shapes = f32_shapes;
};

struct F16 : F32 {
    static constexpr int vector_bytes = 2 * width;

    static Weights weights(const std::byte* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }
};

// A bfloat16 is the upper half of a float.
struct Bf16 : Lanes {
    struct Pair { Float even, odd; };
    using Weights = Pair;
    using Word = Pair;
    static constexpr int vector_bytes = 4 * width;

    static Pair split(Int pairs) { return {float_of_bits(pairs << 16), float_of_bits(pairs & 0xffff0000u)}; }
    static Weights weights(const std::byte* p) { return split(load_int(p)); }
    static Word word(const std::byte* p) {
        int32_t pair;
        __builtin_memcpy(&pair, p, 4);
        return split(splat_int(pair));
    }
    static Sum add(Sum sum, Weights weights, Word word) {
        return fma(weights.odd, word.odd, fma(weights.even, word.even, {sum})).v;
    }
    static constexpr auto& shapes = bf16_shapes;
};
