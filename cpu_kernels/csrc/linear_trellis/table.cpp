#include <algorithm>

#include "linear_trellis/linear_trellis.h"

namespace qk::linear {

namespace {

#if QK_X86_KERNELS
void fill_scales(const uint8_t*, const BlockShape&, const Stretch& out) {
    std::fill_n(out.scale, panel_rows, linear_trellis::rounded_step);
}

template <Unpack decode>
void to_tile(const uint8_t* block, const BlockShape& shape, int step, const TileFactors* factors, std::byte* to) {
    alignas(64) uint8_t codes[step_groups * group_bytes];
    alignas(64) float scale[panel_rows];
    decode(block + step * shape.step_bytes, shape, {codes, scale, nullptr, 1, 1});
    amx::tile_of_codes(codes, *factors, to);
}

template <Unpack decode>
constexpr TileKernels tile_kernels{fill_scales, to_tile<decode>, amx::zero_of_codes};
#endif

#define QK_KERNELS(isa, name, tile) {linear_trellis::isa::direct_##name, linear_trellis::isa::decode_##name, tile}
#if QK_X86_KERNELS
#define QK_X86_ROWS(name)                                                                                      \
    {Isa::amx,                                                                                                 \
     bit(Isa::amx) | bit(Isa::avx512_vnni) | bit(Isa::avx512_bf16),                                            \
     {nullptr, nullptr, nullptr, &tile_kernels<linear_trellis::avx512_vnni::decode_##name>}},                  \
        {Isa::avx512_vnni, bit(Isa::avx512) | bit(Isa::avx512_vnni),                                           \
         QK_KERNELS(avx512_vnni, name, avx512_vnni::tile_span)},                                               \
        {Isa::avx512, bit(Isa::avx512), QK_KERNELS(avx512, name, avx512::tile_span)},                          \
        {Isa::avx_vnni, bit(Isa::avx2) | bit(Isa::avx_vnni), QK_KERNELS(avx_vnni, name, avx_vnni::tile_span)}, \
        {Isa::avx2, bit(Isa::avx2), QK_KERNELS(avx2, name, avx2::tile_span_8)},
#else
#define QK_X86_ROWS(name)
#endif
#define QK_TABLE(name)                              \
    constexpr Impl<BlockKernels> name##_table[] = { \
        QK_X86_ROWS(name){Isa::scalar, bit(Isa::scalar), QK_KERNELS(scalar, name, scalar::tile_span)}};
QK_TABLE(w1)
QK_TABLE(w2)
QK_TABLE(w3)
QK_TABLE(w4)

TrellisFormat format_of(int bits, std::span<const Impl<BlockKernels>> table) {
    const std::string name = "trellis-w" + std::to_string(bits);
    return {{name, "linear_" + name, Sums::span, table, direct_tokens}, bits};
}

}  // namespace

std::span<const TrellisFormat> trellis_formats() {
    static const TrellisFormat formats[] = {format_of(1, w1_table), format_of(2, w2_table), format_of(3, w3_table),
                                            format_of(4, w4_table)};
    return formats;
}

}  // namespace qk::linear
