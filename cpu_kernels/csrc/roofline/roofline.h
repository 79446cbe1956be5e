// The two limits of any kernel on this machine, measured: bytes from memory and operations from registers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dispatch.h"

namespace qk::roofline {

struct ReadKernel {
    // Reads every byte once; returns something that depends on each.
    uint64_t (*read)(const uint8_t* data, int64_t size);  // data 64-byte aligned, size % 512 == 0
};

struct PeakKernel {
    // Independent chains of multiply-adds in registers; returns the operations done, two a multiply-add.
    int64_t (*run)(int64_t repeats);
};

// Tables, best first.
std::span<const Impl<ReadKernel>> read_table();
std::span<const Impl<PeakKernel>> int8_table();
std::span<const Impl<PeakKernel>> int16_table();
std::span<const Impl<PeakKernel>> bf16_table();
std::span<const Impl<PeakKernel>> fp32_table();

// Each returns the best of several runs within so many seconds, the peaks within about 0.3, and throws
// std::invalid_argument on bad `threads`.
double read_bandwidth(int64_t threads, double seconds);  // bytes/s of a buffer far larger than the caches
double int8_peak(int64_t threads);       // operations/s; on AVX2 those of sums in 16 bits, the fastest there are
double int16_peak(int64_t threads);      // operations/s
double bf16_peak(int64_t threads);       // operations/s; without such products those of fp32, which run instead
double fp32_peak(int64_t threads);       // operations/s

#define QK_DECLARE(isa)                               \
    namespace isa {                                   \
    uint64_t read(const uint8_t* data, int64_t size); \
    int64_t int8_chains(int64_t repeats);             \
    int64_t fp32_chains(int64_t repeats);             \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
#undef QK_DECLARE
namespace avx2 { int64_t int16_chains(int64_t repeats); }
namespace avx_vnni { int64_t int8_chains(int64_t repeats); }
namespace avx512 {
int64_t int16_chains(int64_t repeats);
uint64_t read(const uint8_t* data, int64_t size);
int64_t fp32_chains(int64_t repeats);
}  // namespace avx512
namespace avx512_vnni {
int64_t int8_chains(int64_t repeats);
int64_t int16_chains(int64_t repeats);
}  // namespace avx512_vnni
namespace avx512_bf16 { int64_t bf16_chains(int64_t repeats); }
namespace amx {
int64_t int8_chains(int64_t repeats);
int64_t bf16_chains(int64_t repeats);
}  // namespace amx

}  // namespace qk::roofline
