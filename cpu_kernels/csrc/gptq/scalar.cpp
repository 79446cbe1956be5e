#include <cmath>

#include "gptq/gptq.h"

namespace qk::gptq::scalar {

constexpr Isa this_isa = Isa::scalar;
constexpr int width = 1, num_vectors = 4;

using Float = float;

inline Float load(const float* from) { return *from; }
inline void store(float* to, Float a) { *to = a; }
inline Float splat(float value) { return value; }
inline Float fma(Float a, Float b, Float c) { return std::fma(a, b, c); }
inline Float min(Float a, Float b) { return a < b ? a : b; }
inline Float max(Float a, Float b) { return a > b ? a : b; }
inline Float round_even(Float a) { return std::nearbyint(a); }
inline bool is_zero(Float a) { return a == 0.0f; }
inline Float select(bool mask, Float yes, Float no) { return mask ? yes : no; }

#include "gptq/kernels.inl"

}  // namespace qk::gptq::scalar
