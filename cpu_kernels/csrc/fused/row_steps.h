// The steps of a decoder layer between its products, one row at a time: cpu_kernels/fused.py defines it.
#pragma once

#include <cstdint>
#include <span>

#include "dispatch.h"

namespace qk::fused {

// Each step returns its own name.
struct RowSteps {
    // out = x / sqrt(mean(x^2) + eps) * weight; out may be x
    Isa (*rms_norm)(const float* x, const float* weight, float eps, int64_t size, float* out);
    // out = silu(gate) * up; out may be either
    Isa (*silu_mul)(const float* gate, const float* up, int64_t size, float* out);
};

std::span<const Impl<RowSteps>> row_steps_table();

#define QK_DECLARE_ROW_STEPS(isa)                                                           \
    namespace isa {                                                                         \
    Isa rms_norm(const float* x, const float* weight, float eps, int64_t size, float* out); \
    Isa silu_mul(const float* gate, const float* up, int64_t size, float* out);             \
    }
QK_DECLARE_ROW_STEPS(scalar)
QK_DECLARE_ROW_STEPS(avx2)
QK_DECLARE_ROW_STEPS(avx512)
#undef QK_DECLARE_ROW_STEPS

}  // namespace qk::fused
