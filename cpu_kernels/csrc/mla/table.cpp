#include <stdexcept>

#include "mla/kernels.h"

namespace qk::mla {

static constexpr Impl<Kernels> impls[] = {
#if QK_X86_KERNELS
    {Isa::avx512, bit(Isa::avx512), {avx512::multiply}},
    {Isa::avx2, bit(Isa::avx2), {avx2::multiply}},
#endif
    {Isa::scalar, bit(Isa::scalar), {scalar::multiply}},
};

std::span<const Impl<Kernels>> table() { return impls; }

Format parse_format(std::string_view name) {
    std::string known;
    for (int i = 0; i < num_formats; i++) {
        if (name == format_names[i]) return static_cast<Format>(i);
        known += (i ? ", " : "") + std::string(format_names[i]);
    }
    throw std::invalid_argument("format: got " + std::string(name) + ", expected one of " + known);
}

}  // namespace qk::mla
