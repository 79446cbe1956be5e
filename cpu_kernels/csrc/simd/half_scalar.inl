// float16 and bfloat16, in memory or in the low half of each lane: one lane, for any machine.
// Include it after simd/int_scalar.inl.
#ifndef QK_SIMD_INT
#error "simd/half_scalar.inl: include simd/int_*.inl before this file"
#endif
#define QK_SIMD_HALF

inline Float load_f16(const uint16_t* from) { return {half_to_float(*from)}; }
inline Float load_bf16(const uint16_t* from) { return {std::bit_cast<float>(static_cast<uint32_t>(*from) << 16)}; }

// float16 bits of a, rounded to the nearest even, and back.
inline Int half_bits(Float a) { return {float_to_half(a.v)}; }
inline Float half_value(Int a) { return {half_to_float(static_cast<uint16_t>(a.v))}; }
