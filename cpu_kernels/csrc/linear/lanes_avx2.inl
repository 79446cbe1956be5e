// 8 rows side by side, without vpdpbusd. Included inside a namespace, after simd/open_avx2.h.

#define QK_LINEAR_PAIRS  // products are summed as Pairs of 16 bits; there is no `dot`

constexpr Isa this_isa = Isa::avx2;

namespace {

#include "linear/lanes_256.inl"

// Added to each code of an unpacked stretch: as little as makes them unsigned, so that sums of their products
// fit 16 bits; nothing to those of 8 bits.
constexpr int stretch_lift(Sums sums, int code_bits) {
    const int bits = tile_bits(code_bits);
    return is_biased(sums) && bits < 8 ? 1 << (bits - 1) : 0;
}

// Sums of 16 bits
struct Pairs { __m256i v; };

// Keeps GCC from postponing or reordering additions: it would store every product until then.
template <class Vector>
inline Vector in_register(Vector a) {
    asm("" : "+x"(a.v));
    return a;
}

// vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits and saturates. Codes below 64 leave room for
// the sums of several groups: 2 * 15 * 127 for 8 of them, 2 * 31 * 127 for 4, 2 * 63 * 127 for 2, at most 32004; those
// of 7 bits have room for one, 2 * 127 * 127.
// Codes of 8 bits have a sign and give it to the activations: |q| * (sign of q) x is 2 * 128 * 127 = 32512 at most.
constexpr int groups_per_run(int bits) { return bits == 8 ? 1 : 1 << (7 - bits); }
static_assert(2 * 15 * 127 * groups_per_run(4) < 1 << 15);
static_assert(2 * 31 * 127 * groups_per_run(5) < 1 << 15);
static_assert(2 * 63 * 127 * groups_per_run(6) < 1 << 15);
static_assert(2 * 127 * 127 * groups_per_run(7) < 1 << 15);

inline Pairs multiply(Bytes codes, Bytes x) { return {_mm256_maddubs_epi16(codes.v, x.v)}; }
inline Bytes absolute(Bytes a) { return {_mm256_abs_epi8(a.v)}; }
inline Bytes with_sign_of(Bytes a, Bytes q) { return {_mm256_sign_epi8(a.v, q.v)}; }
inline Pairs add(Pairs a, Pairs b) { return in_register(Pairs{_mm256_add_epi16(a.v, b.v)}); }
inline Ints add(Ints a, Ints b) { return in_register(a + b); }
inline Pairs one_each() { return in_register(Pairs{_mm256_set1_epi16(1)}); }
inline Ints widen(Pairs a, Pairs ones) { return {_mm256_madd_epi16(a.v, ones.v)}; }
inline Pairs subtract(Pairs a, Pairs b) { return {_mm256_sub_epi16(a.v, b.v)}; }
inline Bytes splat_four(int32_t four) { return {_mm256_set1_epi32(four)}; }

inline Bytes codes_of(const ActivationBlock& x) {
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(x.codes))};
}
inline void store_pairs(int32_t* to, Pairs a) { _mm256_store_si256(reinterpret_cast<__m256i*>(to), a.v); }

// The sums over each four neighbouring lanes of 32 bits, in all of them.
inline Pairs sum_of_fours(Pairs a) {
    a = add(a, Pairs{_mm256_shuffle_epi32(a.v, 0b10110001)});
    return add(a, Pairs{_mm256_shuffle_epi32(a.v, 0b01001110)});
}

}  // namespace
