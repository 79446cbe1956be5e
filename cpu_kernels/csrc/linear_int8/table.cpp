#include "linear_int8/linear_int8.h"

namespace qk::linear_int8 {

#define QK_KERNELS(isa) {isa::absmax, isa::codes, isa::multiply}

static constexpr Impl<Kernels> impls[] = {
#if QK_X86_KERNELS
    {Isa::amx, bit(Isa::amx) | bit(Isa::avx512), QK_KERNELS(amx)},
    {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), QK_KERNELS(avx512_vnni)},
    {Isa::avx512, bit(Isa::avx512), QK_KERNELS(avx512)},
    {Isa::avx_vnni, bit(Isa::avx2) | bit(Isa::avx_vnni), {avx2::absmax, avx2::codes, avx_vnni::multiply}},
    {Isa::avx2, bit(Isa::avx2), QK_KERNELS(avx2)},
#endif
    {Isa::scalar, bit(Isa::scalar), QK_KERNELS(scalar)},
};
#undef QK_KERNELS

std::span<const Impl<Kernels>> table() { return impls; }

const Kernels& kernels_of(Isa isa) {
    for (const auto& impl : impls)
        if (impl.isa <= isa && impl.available()) return impl.kernels;
    return impls[std::size(impls) - 1].kernels;
}

}  // namespace qk::linear_int8
