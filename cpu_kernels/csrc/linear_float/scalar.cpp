#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "half.h"
#include "linear_float/linear_float.h"

namespace qk::linear_float::scalar {

constexpr Isa this_isa = Isa::scalar;

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_float/kernels.inl"

struct Lanes {
    struct Sum { float row[panel_rows]; };
    static constexpr int rows = panel_rows;
    static constexpr int shapes[] = {0, 0, 1};

    static void keep(Sum&) {}
    static Sum zero() { return {}; }
    static void store(const Sum& sum, float* y, int64_t num_rows, bool add) {
        for (int64_t row = 0; row < num_rows; row++) y[row] = add ? y[row] + sum.row[row] : sum.row[row];
    }
};

struct F32 : Lanes {
    using Weights = const float*;
    using Word = float;
    static constexpr int vector_bytes = 64;

    static Weights weights(const std::byte* p) { return reinterpret_cast<const float*>(p); }
    static Word word(const std::byte* p) { return *reinterpret_cast<const float*>(p); }
    static Sum add(Sum sum, Weights weights, Word word) {
        for (int row = 0; row < rows; row++) sum.row[row] += weights[row] * word;
        return sum;
    }
};

struct F16 : F32 {
    using Weights = const uint16_t*;
    static constexpr int vector_bytes = 32;

    static Weights weights(const std::byte* p) { return reinterpret_cast<const uint16_t*>(p); }
    static Sum add(Sum sum, Weights weights, Word word) {
        for (int row = 0; row < rows; row++) sum.row[row] += half_to_float(weights[row]) * word;
        return sum;
    }
};

struct Bf16 : Lanes {
    using Weights = const uint32_t*;
    using Word = uint32_t;
    static constexpr int vector_bytes = 64;

    static float even(uint32_t pair) { return std::bit_cast<float>(pair << 16); }
    static float odd(uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); }
    static Weights weights(const std::byte* p) { return reinterpret_cast<const uint32_t*>(p); }
    static Word word(const std::byte* p) { return *reinterpret_cast<const uint32_t*>(p); }
    static Sum add(Sum sum, Weights weights, Word word) {
        for (int row = 0; row < rows; row++) {
            sum.row[row] += even(weights[row]) * even(word);
            sum.row[row] += odd(weights[row]) * odd(word);
        }
        return sum;
    }
};

#include "linear_float/products.inl"

void round_to_bf16(const float* x, int64_t size, uint16_t* out) {
    for (int64_t k = 0; k < size; k++) {
        const uint32_t bits = std::bit_cast<uint32_t>(x[k]);
        const uint32_t rounded = std::isnan(x[k]) ? bits | 0x00400000u : bits + 0x7fffu + (bits >> 16 & 1);
        out[k] = static_cast<uint16_t>(rounded >> 16);
    }
}

}  // namespace qk::linear_float::scalar
