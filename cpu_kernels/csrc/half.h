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

// To the nearest half, ties to the even one; beyond 65504 + 16 infinite. NaN must not come.
inline uint16_t float_to_half(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        // Subnormal: units of 2^-24. At 0.5 a float has just those units, so that the addition does the rounding.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
    }
    const uint32_t ties_to_even = magnitude >> 13 & 1;
    return static_cast<uint16_t>(sign | (magnitude - (112u << 23) + 0xfffu + ties_to_even) >> 13);
}

}  // namespace qk
