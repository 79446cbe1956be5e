// float32 in the lanes of a register: 16 lanes. Include it inside a namespace, and inside a
// region with the targets avx512f, bw, vl and dq. min and max return b if one of both is NaN; round takes ties to even.
#ifndef QK_INTRINSICS
#error "simd/float_avx512.inl: include simd/target.h before the target region"
#endif
#define QK_SIMD_FLOAT

constexpr int width = 16;

struct Float { __m512 v; };
struct Mask { __mmask16 v; };

inline Float splat(float value) { return {_mm512_set1_ps(value)}; }
inline Float load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm512_storeu_ps(to, a.v); }
inline Float operator+(Float a, Float b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Float operator-(Float a, Float b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Float operator*(Float a, Float b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Float operator/(Float a, Float b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Float min(Float a, Float b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Float max(Float a, Float b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Float abs(Float a) { return {_mm512_abs_ps(a.v)}; }
inline Float sqrt(Float a) { return {_mm512_sqrt_ps(a.v)}; }
inline Float round(Float a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Float fma(Float a, Float b, Float c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Mask operator<(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask operator<=(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
inline Mask operator>(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
inline Mask operator>=(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
inline Mask operator==(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
inline Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.v & b.v)}; }
inline Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.v | b.v)}; }
inline bool any(Mask a) { return a.v; }
inline Float select(Mask m, Float yes, Float no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }

// Lane j of row i goes to lane i of row j: first pairs, then fours, then quarters and halves change places.
inline void transpose(Float* rows) {
    __m512 pairs[16], fours[16], eights[16];
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_ps(rows[i].v, rows[i + 1].v);
        pairs[i + 1] = _mm512_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm512_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0b01000100);
            fours[i + 2 * j + 1] = _mm512_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0b11101110);
        }
    }
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 16; j += 8) {
            eights[j + i] = _mm512_shuffle_f32x4(fours[j + i], fours[j + i + 4], 0b10001000);
            eights[j + i + 4] = _mm512_shuffle_f32x4(fours[j + i], fours[j + i + 4], 0b11011101);
        }
    }
    for (int i = 0; i < 8; i++) {
        rows[i].v = _mm512_shuffle_f32x4(eights[i], eights[i + 8], 0b10001000);
        rows[i + 8].v = _mm512_shuffle_f32x4(eights[i], eights[i + 8], 0b11011101);
    }
}
