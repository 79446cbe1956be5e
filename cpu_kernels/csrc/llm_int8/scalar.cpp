#include <algorithm>
#include <bit>
#include <cmath>

#include "half.h"
#include "llm_int8/llm_int8.h"

namespace qk::llm_int8::scalar {

static float rounded(float x) { return std::isnan(x) ? x : half_to_float(float_to_half(x)); }

float scan(const float* x, const uint8_t* known, int64_t size, uint8_t* flags) {
    uint32_t most = 0;  // absolute floats order like their bits, NaN last
    for (int64_t k = 0; k < size; k++) {
        const float magnitude = known[k] ? 0 : std::fabs(rounded(x[k]));
        if (magnitude >= outlier_threshold)
            raise_flag(flags[k]);
        else
            most = std::max(most, std::bit_cast<uint32_t>(magnitude));
    }
    return std::bit_cast<float>(most);
}

int32_t codes(const float* x, const uint8_t* known, int64_t size, float per_unit, int8_t* out) {
    int32_t sum = 0;
    for (int64_t k = 0; k < size; k++) {
        const float half = known[k] ? 0 : rounded(x[k]);
        const float units = std::fabs(half) >= outlier_threshold ? 0 : half * per_unit;
        out[k] = std::isnan(units) ? 0 : static_cast<int8_t>(std::lrint(units));
        sum += out[k];
    }
    return sum;
}

}  // namespace qk::llm_int8::scalar
