// IEEE half precision for code that has no instruction for it.
#pragma once

#include <bit>
#include <cstdint>

namespace qk {

//     half   s eeeee mmmmmmmmmm               bias 15
//     float  s eeeeeeee mmmmmmmmmm0000000000000  bias 127
inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t{half & 0x8000u} << 16;
    const uint32_t exponent_mantissa = uint32_t{half & 0x7fffu} << 13;
    // The same bits read as a float are 2^(127 - 15) too small; subnormal halves come out right as well.
    const float value = std::bit_cast<float>(exponent_mantissa) * 0x1p112f;
    const bool special = (half & 0x7c00u) == 0x7c00u;  // infinite or NaN: all ones there, all ones here
    const uint32_t bits = special ? exponent_mantissa | 0x7f800000u : std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>(bits | sign);
}

}  // namespace qk
