#include "turn/turn.h"

#include <array>
#include <stdexcept>

namespace qk::turn {
namespace {

// SHAKE-128 of "signs of SIZE", most significant bit first: quant/turn.py has the rule, and tests compare.
constexpr uint8_t bits_16[] = {0xcc, 0xfd};
constexpr uint8_t bits_32[] = {0xda, 0xb0, 0x57, 0x7c};
constexpr uint8_t bits_64[] = {0xde, 0x57, 0x7e, 0x89, 0x96, 0xa0, 0x17, 0xf8};
constexpr uint8_t bits_128[] = {0x2b, 0xc9, 0x36, 0xf3, 0xc7, 0x05, 0xe9, 0xb2,
                                0x9a, 0xe6, 0x9c, 0x52, 0x92, 0x4c, 0x6b, 0x26};

template <size_t num_bytes>
constexpr std::array<float, 8 * num_bytes> signs_from(const uint8_t (&bytes)[num_bytes]) {
    std::array<float, 8 * num_bytes> signs{};
    for (size_t i = 0; i < signs.size(); i++) signs[i] = bytes[i / 8] >> (7 - i % 8) & 1 ? -1.0f : 1.0f;
    return signs;
}

constexpr auto signs_16 = signs_from(bits_16);
constexpr auto signs_32 = signs_from(bits_32);
constexpr auto signs_64 = signs_from(bits_64);
constexpr auto signs_128 = signs_from(bits_128);

constexpr Kernels scalar_kernels{scalar::rows, scalar::outputs};
#if QK_X86_KERNELS
constexpr Kernels avx2_kernels{avx2::rows, avx2::outputs}, avx512_kernels{avx512::rows, avx512::outputs};
#endif

}  // namespace

const float* signs_of(int size) {
    switch (size) {
        case 16: return signs_16.data();
        case 32: return signs_32.data();
        case 64: return signs_64.data();
        case 128: return signs_128.data();
        default: throw std::logic_error("no turn has this size");
    }
}

const Kernels& kernels_of([[maybe_unused]] Isa isa) {
#if QK_X86_KERNELS
    if (isa >= Isa::avx512) return avx512_kernels;
    if (isa >= Isa::avx2) return avx2_kernels;
#endif
    return scalar_kernels;
}

}  // namespace qk::turn
