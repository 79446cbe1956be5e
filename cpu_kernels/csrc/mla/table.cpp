#include <stdexcept>

#include "mla/kernels.h"

namespace qk::mla {

static constexpr Impl<Kernels> impls[] = {QK_IMPLS(QK_KERNEL, multiply)};

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
