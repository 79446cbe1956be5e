// float32 in the lanes of a register: 8 lanes. Include it inside a namespace, and inside a region
// with the targets avx2, fma and f16c. min and max return b if one of both is NaN; round takes ties to even.
#ifndef QK_INTRINSICS
#error "simd/float_avx2.inl: include simd/target.h before the target region"
#endif
#define QK_SIMD_FLOAT

constexpr int width = 8;

struct Float { __m256 v; };
struct Mask { __m256 v; };  // all ones or all zeros per lane

inline Float splat(float value) { return {_mm256_set1_ps(value)}; }
inline Float load(const float* from) { return {_mm256_loadu_ps(from)}; }
inline void store(float* to, Float a) { _mm256_storeu_ps(to, a.v); }
inline Float operator+(Float a, Float b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Float operator-(Float a, Float b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Float operator*(Float a, Float b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Float operator/(Float a, Float b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Float min(Float a, Float b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Float max(Float a, Float b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Float abs(Float a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline Float sqrt(Float a) { return {_mm256_sqrt_ps(a.v)}; }
inline Float round(Float a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Float fma(Float a, Float b, Float c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Mask operator<(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask operator<=(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LE_OQ)}; }
inline Mask operator>(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)}; }
inline Mask operator>=(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
inline Mask operator==(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)}; }
inline Mask operator&(Mask a, Mask b) { return {_mm256_and_ps(a.v, b.v)}; }
inline Mask operator|(Mask a, Mask b) { return {_mm256_or_ps(a.v, b.v)}; }
inline bool any(Mask a) { return _mm256_movemask_ps(a.v); }
inline Float select(Mask m, Float yes, Float no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }

// Lane j of row i goes to lane i of row j: first pairs, then fours, then halves change places.
inline void transpose(Float* rows) {
    __m256 pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(rows[i].v, rows[i + 1].v);
        pairs[i + 1] = _mm256_unpackhi_ps(rows[i].v, rows[i + 1].v);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0b01000100);
            fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0b11101110);
        }
    }
    for (int i = 0; i < 4; i++) {
        rows[i].v = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        rows[i + 4].v = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}
