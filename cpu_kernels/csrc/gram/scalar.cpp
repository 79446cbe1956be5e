#include <bit>
#include <cmath>

#include "gram/gram.h"

namespace qk::gram::scalar {

constexpr Isa this_isa = Isa::scalar;
constexpr int width = 1, num_rows = 4, num_vectors = 4;

using Float = float;
using Words = uint32_t;

inline Float load(const float* from) { return *from; }
inline void store(float* to, Float a) { *to = a; }
inline Words load_words(const uint32_t* from) { return *from; }
inline Words splat_word(uint32_t word) { return word; }
inline Float even(Words a) { return std::bit_cast<float>(a << 16); }
inline Float odd(Words a) { return std::bit_cast<float>(a & 0xffff0000u); }
inline Float multiply_add(Float sum, Words a, Words b) {
    // A product of two bfloat16 has 16 bits and is exact, so that a fused multiply-add is this sum.
    return (sum + odd(a) * odd(b)) + even(a) * even(b);
}

#include "gram/kernels.inl"

}  // namespace qk::gram::scalar
