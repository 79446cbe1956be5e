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
#define QK_TABLE(name, block_size, block_bytes, sums)           \
    static constexpr Impl<BlockKernels> name##_table[] = {      \
        QK_X86_ROWS(name, sums){Isa::scalar, bit(Isa::scalar), QK_KERNELS(scalar, name, sums)}};
QK_BLOCK_FORMATS(QK_TABLE)

#define QK_FORMAT(name, block_size, block_bytes, sums) \
    {#name, "linear_" #name, block_size, block_bytes, Sums::sums, name##_table},
static constexpr BlockFormat formats[] = {QK_BLOCK_FORMATS(QK_FORMAT)};

std::span<const BlockFormat> block_formats() { return formats; }

}  // namespace qk::linear
