#include <algorithm>

#include "linear/block.h"

namespace qk::linear {

#define QK_KERNELS(isa, name, sums) {isa::direct_##name, isa::unpack_##name, isa::tile_##sums}
#if QK_X86_KERNELS
#define QK_X86_ROWS(name, sums)                                                                                 \
    {Isa::amx, bit(Isa::amx) | bit(Isa::avx512_vnni), {nullptr, avx512_vnni::unpack_##name, amx::tile_##sums}}, \
    {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), QK_KERNELS(avx512_vnni, name, sums)},          \
    {Isa::avx512, bit(Isa::avx512), QK_KERNELS(avx512, name, sums)},                                            \
    {Isa::avx2, bit(Isa::avx2), QK_KERNELS(avx2, name, sums)},
#else
#define QK_X86_ROWS(name, sums)
#endif
#define QK_TABLE(name, size, bytes, sums)                       \
    static constexpr Impl<BlockKernels> name##_table[] = {      \
        QK_X86_ROWS(name, sums){Isa::scalar, bit(Isa::scalar), QK_KERNELS(scalar, name, sums)}};
QK_BLOCK_FORMATS(QK_TABLE)
QK_GROUP_FORMATS(QK_TABLE)

#if QK_X86_KERNELS
#define QK_X86_REROUND(sums)                                                                                         \
    {Isa::amx, bit(Isa::amx) | bit(Isa::avx512_vnni), {avx512::reround_##sums, amx::tile_span}},                     \
    {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), {avx512::reround_##sums, avx512_vnni::tile_span}}, \
    {Isa::avx512, bit(Isa::avx512), {avx512::reround_##sums, avx512::tile_span}},                                    \
    {Isa::avx2, bit(Isa::avx2), {avx2::reround_##sums, avx2::tile_span}},
#else
#define QK_X86_REROUND(sums)
#endif
#define QK_REROUND_TABLE(sums)                                 \
    static constexpr Impl<ReroundKernels> sums##_rerounding[] = { \
        QK_X86_REROUND(sums){Isa::scalar, bit(Isa::scalar), {scalar::reround_##sums, scalar::tile_span}}};
QK_REROUNDED_SUMS(QK_REROUND_TABLE)

const Rerounding* rerounding_of(std::string_view format) {
#define QK_REROUNDED(name, bits, sums) {#name, bits, sums##_rerounding},
    static const Rerounding all[] = {QK_REROUNDED_FORMATS(QK_REROUNDED)};
    for (const Rerounding& one : all)
        if (one.format == format) return &one;
    return nullptr;
}

// An underscore here is a hyphen there: w4_asym is "w4-asym".
static std::string with_hyphen(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

std::span<const BlockFormat> block_formats() {
#define QK_FORMAT(name, block_size, block_bytes, sums) \
    {{#name, "linear_" #name, Sums::sums, name##_table}, block_size, block_bytes},
    static const BlockFormat formats[] = {QK_BLOCK_FORMATS(QK_FORMAT)};
    return formats;
}

std::span<const GroupFormat> group_formats() {
#define QK_GROUP(name, bits, header_bytes, sums) \
    {{with_hyphen(#name), "linear_" + with_hyphen(#name), Sums::sums, name##_table}, bits, header_bytes},
    static const GroupFormat formats[] = {QK_GROUP_FORMATS(QK_GROUP)};
    return formats;
}

}  // namespace qk::linear
