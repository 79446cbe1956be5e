#include "roofline/roofline.h"

namespace qk::roofline::scalar {

uint64_t read(const uint8_t* data, int64_t size) {
    const auto* words = reinterpret_cast<const uint64_t*>(data);
    uint64_t sum[8] = {};
    for (int64_t i = 0; i < size / 8; i += 8)
        for (int j = 0; j < 8; j++) sum[j] ^= words[i + j];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

// Compilers use the vectors of 16 bytes that every x86-64 and Arm processor has: the most products of one instruction
// are those of 4 floats, and of 8 words for codes. As in avx2.cpp only multiplications run.
template <class Lane>
[[gnu::always_inline]] inline int64_t run_products(Lane factor, int64_t repeats) {
    typedef Lane Lanes [[gnu::vector_size(16)]];
    constexpr int unrolled = 16, lanes = sizeof(Lanes) / sizeof(Lane);
    Lanes a = {}, b = {};
    for (int lane = 0; lane < lanes; lane++) a[lane] = b[lane] = factor;
#if defined(__x86_64__)
#define QK_OPAQUE(value) asm volatile("" : "+x"(value))
#elif defined(__aarch64__)
#define QK_OPAQUE(value) asm volatile("" : "+w"(value))
#else
#define QK_OPAQUE(value) asm volatile("" : "+m"(value))
#endif
    QK_OPAQUE(b);  // else a product with 3 would be a sum
    for (int64_t i = 0; i < repeats; i++) {
#pragma GCC unroll 16
        for (int c = 0; c < unrolled; c++) {
            QK_OPAQUE(a);  // else the product would be taken out of the loop
            Lanes product = a * b;
            QK_OPAQUE(product);
        }
    }
#undef QK_OPAQUE
    return repeats * unrolled * lanes * 2;
}

int64_t int8_chains(int64_t repeats) { return run_products<int16_t>(3, repeats); }
int64_t fp32_chains(int64_t repeats) { return run_products<float>(0.5f, repeats); }

}  // namespace qk::roofline::scalar
