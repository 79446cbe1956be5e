// 16 rows side by side, without vpdpbusd. Included inside a namespace, after simd/open_avx512.h.

constexpr Isa this_isa = Isa::avx512;

namespace {

#include "linear/lanes_512.inl"

// sum + codes * x over the 4 k of a group. The codes are unsigned; those of signed formats have `lift` added.
//
// vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits and saturates. Codes of formats with minima
// are below 64: 2 * 63 * 127 fits. Lifted ones get their sign back and give it to the activations: |q| * (sign of q) x
// is 2 * 128 * 127 = 32512 at most.
template <int lift>
inline Ints dot(Ints sum, Bytes codes, int32_t x) {
    const __m512i four_x = _mm512_set1_epi32(x), ones = _mm512_set1_epi16(1);
    __m512i pairs;
    if constexpr (lift != 0) {
        const __m512i q = (codes + -lift).v;
        const __m512i signed_x = _mm512_mask_sub_epi8(four_x, _mm512_movepi8_mask(q), _mm512_setzero_si512(), four_x);
        pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(q), signed_x);
    } else {
        pairs = _mm512_maddubs_epi16(codes.v, four_x);
    }
    return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, ones))};
}

// The first value of a sum of products of lifted codes: nothing, as they are lowered before.
template <int lift>
inline Ints bias(int32_t) {
    return zero_ints();
}

}  // namespace
