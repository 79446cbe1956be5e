#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "linear_int8/linear_int8.h"

namespace qk::linear_int8::scalar {

using namespace linear;
#include "linear/dense_tile.inl"
#include "linear_int8/kernels.inl"

struct Dot {
    struct Sum {
        uint32_t row[panel_rows];  // unsigned, as partial sums may wrap
    };
    using Weights = const uint8_t*;
    using Word = const int8_t*;
    static constexpr int rows = panel_rows;
    static constexpr int vector_bytes = 64;

    static void keep(Sum&) {}
    static Sum broadcast(int32_t value) {
        Sum sum;
        std::fill_n(sum.row, rows, static_cast<uint32_t>(value));
        return sum;
    }
    static Weights weights(const std::byte* p) { return reinterpret_cast<const uint8_t*>(p); }
    static Word word(const std::byte* p) { return reinterpret_cast<const int8_t*>(p); }
    static Sum add(Sum sum, Weights weights, Word word) {
        for (int row = 0; row < rows; row++)
            for (int k = 0; k < 4; k++) sum.row[row] += static_cast<uint32_t>(weights[row * 4 + k] * word[k]);
        return sum;
    }
    static void store(const Sum& sum, const float* weight_scale, Scales by, float* y, int64_t num_rows) {
        for (int64_t row = 0; row < num_rows; row++)
            y[row] = static_cast<float>(static_cast<int32_t>(sum.row[row])) * (weight_scale[row] * by.weight_scale) *
                     by.result;
    }
    static constexpr int shapes[] = {0, 0, 1};
};

Isa multiply(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    multiply_panels<Dot>(weight, begin, end, x, Scaled<Dot>{{x, target.codes_per_token}, target});
    return Isa::scalar;
}

float absmax(const float* x, int64_t size) {
    uint32_t most = 0;  // absolute floats order like their bits, NaN last
    for (int64_t k = 0; k < size; k++) most = std::max(most, std::bit_cast<uint32_t>(x[k]) & 0x7fffffffu);
    return std::bit_cast<float>(most);
}

int32_t codes(const float* x, int64_t size, float scale, int8_t* out) {
    int32_t sum = 0;
    for (int64_t k = 0; k < size; k++) {
        const float units = x[k] / scale;
        out[k] = std::isnan(units) ? 0 : static_cast<int8_t>(std::lrint(std::clamp(units, -128.0f, 127.0f)));
        sum += out[k];
    }
    return sum;
}

}  // namespace qk::linear_int8::scalar
