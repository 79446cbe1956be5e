#include "roofline/roofline.h"

namespace qk::roofline::scalar {

uint64_t read(const uint8_t* data, int64_t size) {
    const auto* words = reinterpret_cast<const uint64_t*>(data);
    uint64_t sum[8] = {};
    for (int64_t i = 0; i < size / 8; i += 8)
        for (int j = 0; j < 8; j++) sum[j] ^= words[i + j];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

// 8 chains hide a latency of 3 to 4 cycles at two multiply-adds a cycle. The empty asm keeps the compiler from
// finding the closed form of the loop.
constexpr int chains = 8;

int64_t int8_chains(int64_t repeats) {
    int32_t sum[chains] = {}, a = 3, b = 5;
    for (int64_t i = 0; i < repeats; i++) {
        for (int c = 0; c < chains; c++) {
            asm volatile("" : "+r"(a), "+r"(b));
            sum[c] += static_cast<int8_t>(a) * static_cast<int8_t>(b);
        }
    }
    for (int32_t& value : sum) asm volatile("" : "+m"(value));
    return repeats * chains * 2;
}

int64_t fp32_chains(int64_t repeats) {
    float sum[chains] = {}, a = 0.5f, b = 0.25f;
    for (int64_t i = 0; i < repeats; i++) {
        asm volatile("" : "+m"(a), "+m"(b));
        for (int c = 0; c < chains; c++) sum[c] = sum[c] * a + b;
    }
    for (float& value : sum) asm volatile("" : "+m"(value));
    return repeats * chains * 2;
}

}  // namespace qk::roofline::scalar
