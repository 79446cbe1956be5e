#include "linear_float/linear_float.h"

namespace qk::linear_float {

static constexpr Features bf16_features = bit(Isa::avx512) | bit(Isa::avx512_bf16);

static constexpr Features amx_features = bit(Isa::amx) | bf16_features;

// Weights of 16 bits are also multiplied as bfloat16.
#if QK_X86_KERNELS
#define QK_BF16_IMPLS(name) \
    {Isa::amx, amx_features, {amx::name}}, {Isa::avx512_bf16, bf16_features, {avx512_bf16::name}},
#else
#define QK_BF16_IMPLS(name)
#endif
#define QK_HALF_IMPLS(name) QK_BF16_IMPLS(name) QK_IMPLS(QK_KERNEL, name)

static constexpr Impl<Kernels> bf16_impls[] = {QK_HALF_IMPLS(multiply_bf16)};
static constexpr Impl<Kernels> f16_impls[] = {QK_HALF_IMPLS(multiply_f16)};
static constexpr Impl<Kernels> f32_impls[] = {QK_IMPLS(QK_KERNEL, multiply_f32)};

std::span<const Impl<Kernels>> table(Kind kind) {
    if (kind == Kind::bf16) return bf16_impls;
    return kind == Kind::f16 ? std::span<const Impl<Kernels>>(f16_impls) : f32_impls;
}

RoundToBf16 round_to_bf16([[maybe_unused]] Isa isa) {
#if QK_X86_KERNELS
    if (isa >= Isa::avx512) return avx512::round_to_bf16;
    if (isa >= Isa::avx2) return avx2::round_to_bf16;
#endif
    return scalar::round_to_bf16;
}

}  // namespace qk::linear_float
