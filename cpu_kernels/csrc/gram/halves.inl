// Pairs of bfloat16 for instruction sets that multiply none: each half of a word is widened to float32.
#ifndef QK_SIMD_INT
#error "gram/halves.inl: include simd/int_*.inl before this file"
#endif
#define QK_GRAM_WORDS

using Words = Int;

inline Words load_words(const uint32_t* from) { return load_int(from); }
inline Words splat_word(uint32_t word) { return splat_int(static_cast<int>(word)); }
inline Float even(Words a) { return float_of_bits(a << 16); }
inline Float odd(Words a) { return float_of_bits(a & 0xffff0000u); }

// A product of two bfloat16 has 16 bits and is exact: a fused multiply-add, a library call for one lane, equals this sum.
inline Float multiply_add(Float sum, Words a, Words b) {
    if constexpr (width == 1) return (sum + odd(a) * odd(b)) + even(a) * even(b);
    return fma(even(a), even(b), fma(odd(a), odd(b), sum));
}
