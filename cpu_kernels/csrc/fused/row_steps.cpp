#include "fused/row_steps.h"

namespace qk::fused {

static constexpr Impl<RowSteps> impls[] = {
#if QK_X86_KERNELS
    {Isa::avx512, bit(Isa::avx512), {avx512::rms_norm, avx512::silu_mul}},
    {Isa::avx2, bit(Isa::avx2), {avx2::rms_norm, avx2::silu_mul}},
#endif
    {Isa::scalar, bit(Isa::scalar), {scalar::rms_norm, scalar::silu_mul}},
};

std::span<const Impl<RowSteps>> row_steps_table() { return impls; }

}  // namespace qk::fused
