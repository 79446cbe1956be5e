#include "mla/kernels.h"
#include "names.h"

namespace qk::mla {

static constexpr Impl<Kernels> impls[] = {QK_IMPLS(QK_KERNEL, multiply)};

std::span<const Impl<Kernels>> table() { return impls; }

Format parse_format(std::string_view name) { return static_cast<Format>(index_of(name, format_names, "format")); }

}  // namespace qk::mla
