// LLM.int8(): int8 for input features below a threshold in all tokens of the call, float32 for the others, and their
// sum. The arithmetic is defined by linear_llm_int8_ref in cpu_kernels/linear_int8.py; the order of its roundings is
// that of bitsandbytes.
//
// No Weight of the linear driver: which features are outliers is decided over all tokens of a call, and then known to
// the rounding of each.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dispatch.h"
#include "linear_float/linear_float.h"
#include "linear_int8/linear_int8.h"

namespace qk::llm_int8 {

inline constexpr float outlier_threshold = 6;
inline constexpr float per_code = 1.0f / 127;  // bitsandbytes multiplies by the rounded reciprocal

struct Kernels {
    // All look at x [K] rounded to half precision, where known[k] is 0; an outlier is at the threshold or past it.
    // scan    marks the outliers in flags [K], from several threads; returns the largest other magnitude, NaN first
    // codes   round(x * per_unit) to even, 0 for outliers and NaN; returns their sum
    float (*scan)(const float* x, const uint8_t* known, int64_t size, uint8_t* flags);
    int32_t (*codes)(const float* x, const uint8_t* known, int64_t size, float per_unit, int8_t* out);
    Isa (*multiply)(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&,
                    const linear_int8::Target&);
    linear_float::Multiply multiply_outliers;
};

std::span<const Impl<Kernels>> table();

class Weight {
public:
    // codes [N, K] int8; absmax [N]; outlier_weight [N, F] float16 of the features [F], each in [0, K) and there once:
    // they meet no int8, whatever a call's inputs are
    Weight(const int8_t* codes, const float* absmax, int64_t num_rows, int64_t row_size, const uint16_t* outlier_weight,
           std::vector<int32_t> features);

    int64_t num_rows() const { return packed_.num_rows(); }
    int64_t row_size() const { return packed_.row_size(); }
    size_t nbytes() const;

    // x [M, K] -> y [M, N]. Returns the kernel that ran.
    Isa multiply(const float* x, int64_t num_tokens, float* y, const Impl<Kernels>& impl) const;

    // Row index[i] as float32 in out[i]. index [n] in [0, N); out [n, K]
    void rows(const int64_t* index, int64_t num_indices, float* out) const;

private:
    struct Call;

    // The columns [F] of panels [panel, panel + count) as panels of float32: the call's outliers, then the known ones.
    void gather_columns(int64_t panel, int64_t count, const std::vector<int32_t>& features, float* out) const;
    void row(int64_t row, float* out) const;

    linear_int8::Packed packed_;
    linear_float::Packed outlier_weight_;
    std::vector<int32_t> features_;
    std::vector<uint8_t> known_;  // [K] 1 where a feature is one of them
};

// Few features are outliers, and the same ones in most tokens: a flag that is up is only read.
inline void raise_flag(uint8_t& flag) {
    const std::atomic_ref shared(flag);
    if (!shared.load(std::memory_order_relaxed)) shared.store(1, std::memory_order_relaxed);
}

#define QK_DECLARE(isa)                                                                             \
    namespace isa {                                                                                 \
    float scan(const float* x, const uint8_t* known, int64_t size, uint8_t* flags);                 \
    int32_t codes(const float* x, const uint8_t* known, int64_t size, float per_unit, int8_t* out); \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE

}  // namespace qk::llm_int8
