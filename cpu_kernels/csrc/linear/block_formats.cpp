#include <algorithm>
#include <vector>

#include "linear/block.h"

namespace qk::linear {

// The tile of an instruction set for a way to sum and codes of `bits` bits.
#define QK_TILE_CASE(sums) \
    case Sums::sums: return tile_##sums;
#define QK_TILE_OF(isa)                             \
    namespace isa {                                 \
    static constexpr Tile tile_of(Sums sums, int) { \
        switch (sums) { QK_SUMS(QK_TILE_CASE) }     \
        return nullptr;                             \
    }                                               \
    }
QK_TILE_OF(scalar)
#if QK_X86_KERNELS
namespace avx2 {
#define QK_WIDTH_CASE(its_sums, its_bits) \
    if (sums == Sums::its_sums && tile_bits(code_bits) == its_bits) return tile_##its_sums##_##its_bits;
static consteval Tile tile_of(Sums sums, int code_bits) {
    QK_WIDTHS(QK_WIDTH_CASE)
    throw "a format has a width that is not among QK_WIDTHS";
}
}  // namespace avx2
QK_TILE_OF(avx_vnni)
QK_TILE_OF(avx512)
QK_TILE_OF(avx512_vnni)
#endif

#define QK_KERNELS(isa, name, ...) {isa::direct_##name, isa::unpack_##name, isa::tile_of(__VA_ARGS__)}
#if QK_X86_KERNELS
#define QK_X86_ROWS(name, ...)                                                                                    \
    {Isa::amx,                                                                                                    \
     bit(Isa::amx) | bit(Isa::avx512_vnni) | bit(Isa::avx512_bf16),                                               \
     {nullptr, nullptr, nullptr, &amx::tiles_##name}},                                                            \
        {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), QK_KERNELS(avx512_vnni, name, __VA_ARGS__)}, \
        {Isa::avx512, bit(Isa::avx512), QK_KERNELS(avx512, name, __VA_ARGS__)},                                   \
        {Isa::avx_vnni, bit(Isa::avx2) | bit(Isa::avx_vnni), QK_KERNELS(avx_vnni, name, __VA_ARGS__)},            \
        {Isa::avx2, bit(Isa::avx2), QK_KERNELS(avx2, name, __VA_ARGS__)},
#else
#define QK_X86_ROWS(name, ...)
#endif
// ...: how it sums, and the bits of the codes that it multiplies
#define QK_TABLE(name, ...)                                \
    static constexpr Impl<BlockKernels> name##_table[] = { \
        QK_X86_ROWS(name, __VA_ARGS__){Isa::scalar, bit(Isa::scalar), QK_KERNELS(scalar, name, __VA_ARGS__)}};
#define QK_BLOCK_TABLE(name) QK_TABLE(name, layout::name::sums, layout::code_bits<layout::name>())
// With zero points taken off, codes have 8 bits.
#define QK_GROUP_TABLE(name, bits, header_bytes, sums, most_direct_tokens) \
    QK_TABLE(name, Sums::sums, header_bytes == 3 ? 8 : bits)
QK_BLOCK_FORMATS(QK_BLOCK_TABLE)
QK_GROUP_FORMATS(QK_GROUP_TABLE)

#if QK_X86_KERNELS
#define QK_X86_REROUND(sums)                                                                                        \
    {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni), {avx512::reround_##sums, avx512_vnni::tile_span}}, \
        {Isa::avx512, bit(Isa::avx512), {avx512::reround_##sums, avx512::tile_span}},                               \
        {Isa::avx_vnni, bit(Isa::avx2) | bit(Isa::avx_vnni), {avx_vnni::reround_##sums, avx_vnni::tile_span}},      \
        {Isa::avx2, bit(Isa::avx2), {avx2::reround_##sums, avx2::tile_span_8}},
#else
#define QK_X86_REROUND(sums)
#endif
#define QK_REROUND_TABLE(sums)                                    \
    static constexpr Impl<ReroundKernels> sums##_rerounding[] = { \
        QK_X86_REROUND(sums){Isa::scalar, bit(Isa::scalar), {scalar::reround_##sums, scalar::tile_span}}};
QK_REROUNDED_SUMS(QK_REROUND_TABLE)

static std::span<const Impl<ReroundKernels>> rerounding_table(Sums sums) {
#define QK_REROUNDING_CASE(sums) \
    case Sums::sums: return sums##_rerounding;
    switch (sums) {
        QK_REROUNDED_SUMS(QK_REROUNDING_CASE)
        default: return {};
    }
}

template <class Layout>
static void add_rerounding(const char* format, std::vector<Rerounding>& all) {
    if constexpr (Layout::rerounded) all.push_back({format, Layout::bits, rerounding_table(Layout::sums)});
}

const Rerounding* rerounding_of(std::string_view format) {
#define QK_ADD_REROUNDING(name) add_rerounding<layout::name>(#name, formats);
    static const std::vector<Rerounding> all = [] {
        std::vector<Rerounding> formats;
        QK_BLOCK_FORMATS(QK_ADD_REROUNDING)
        return formats;
    }();
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
#define QK_FORMAT(name)                                                                            \
    {{#name, "linear_" #name, layout::name::sums, name##_table, layout::name::most_direct_tokens}, \
     layout::name::block_size,                                                                     \
     layout::name::block_bytes,                                                                    \
     layout::step_bytes<layout::name>(),                                                           \
     layout::name::fields,                                                                         \
     layout::name::stored_codes,                                                                   \
     layout::name::pack_steps,                                                                     \
     grid_of<layout::name>()},
    static const BlockFormat formats[] = {QK_BLOCK_FORMATS(QK_FORMAT)};
    return formats;
}

std::span<const GroupFormat> group_formats() {
#define QK_GROUP(name, bits, header_bytes, sums, most_direct_tokens)                                     \
    {{with_hyphen(#name), "linear_" + with_hyphen(#name), Sums::sums, name##_table, most_direct_tokens}, \
     bits,                                                                                               \
     header_bytes},
    static const GroupFormat formats[] = {QK_GROUP_FORMATS(QK_GROUP)};
    return formats;
}

}  // namespace qk::linear
