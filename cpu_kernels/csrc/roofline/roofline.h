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

// The fastest run of a measurement. Where others hold the cores, no run may have had one for each thread, and the rate is
// then no peak: that of two threads may be the peak of one.
struct Peak {
    double ops_per_s = 0;
    double cores = 0;  // seconds that its threads were on a processor per second of the clock
};

// Each returns the best of several runs within the given seconds, the peaks within about 0.3, and throws
// std::invalid_argument on bad `threads`.
double read_bandwidth(int64_t threads, double seconds);  // bytes/s of a buffer far larger than the caches
Peak int8_peak(int64_t threads);         // without VNNI that of vpmaddubsw alone
Peak int16_peak(int64_t threads);        // without VNNI that of vpmaddwd alone
Peak bf16_peak(int64_t threads);         // without such products that of fp32, which run instead
Peak fp32_peak(int64_t threads);

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
int64_t int8_chains(int64_t repeats);
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
