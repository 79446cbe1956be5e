// 16 blocks side by side. Included inside a namespace and a target region, after <immintrin.h>.

constexpr int width = 16;
constexpr Isa this_isa = Isa::avx512;

struct Float { __m512 v; };
struct Int { __m512i v; };
struct Mask { __mmask16 v; };

inline Float splat(float value) { return {_mm512_set1_ps(value)}; }
inline Int splat_int(int value) { return {_mm512_set1_epi32(value)}; }
inline Float operator+(Float a, Float b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Float operator-(Float a, Float b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Float operator*(Float a, Float b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Float operator/(Float a, Float b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Float min(Float a, Float b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Float max(Float a, Float b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Float abs(Float a) { return {_mm512_abs_ps(a.v)}; }
inline Float sqrt(Float a) { return {_mm512_sqrt_ps(a.v)}; }
inline Float round(Float a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Mask operator<(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask operator<=(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
inline Mask operator>(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)}; }
inline Mask operator>=(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
inline Mask operator==(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
inline Mask operator&(Mask a, Mask b) { return {static_cast<__mmask16>(a.v & b.v)}; }
inline Mask operator|(Mask a, Mask b) { return {static_cast<__mmask16>(a.v | b.v)}; }
inline bool any(Mask a) { return a.v; }
inline Float select(Mask m, Float yes, Float no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }
inline Int select(Mask m, Int yes, Int no) { return {_mm512_mask_blend_epi32(m.v, no.v, yes.v)}; }

inline Int to_int(Float a) { return {_mm512_cvttps_epi32(a.v)}; }
inline Float to_float(Int a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline Int operator+(Int a, Int b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Int operator-(Int a, Int b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Int operator&(Int a, Int b) { return {_mm512_and_si512(a.v, b.v)}; }
inline Int operator|(Int a, Int b) { return {_mm512_or_si512(a.v, b.v)}; }
inline Int operator<<(Int a, int bits) { return {_mm512_slli_epi32(a.v, bits)}; }
inline Int operator>>(Int a, int bits) { return {_mm512_srli_epi32(a.v, bits)}; }

// float16 bits in the low half of each lane, nearest even; and back.
inline Int half_bits(Float a) {
    return {_mm512_cvtepu16_epi32(_mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}
inline Float half_value(Int a) { return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a.v))}; }
