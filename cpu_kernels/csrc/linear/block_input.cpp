#include "linear/block_input.h"

#include <algorithm>

namespace qk::linear {
namespace {

RoundRow round_row_of(Isa isa) {
#if QK_X86_KERNELS
    if (isa >= Isa::avx512) return avx512::round_row;
    if (isa >= Isa::avx2) return avx2::round_row;
#endif
    (void)isa;
    return scalar::round_row;
}

}  // namespace

BlockInput::BlockInput(int64_t row_size, std::vector<int32_t> order) : row_size_(row_size), order_(std::move(order)) {}

size_t BlockInput::token_bytes() const {
    // A tile reads 16 lines of each of 6 tokens over and over, next to 16 KiB of codes, half of an L1 of 64 sets. Where
    // tokens are a multiple of 4 KiB apart, as at K = 2048, all their lines fall into the same 16 sets; at 16 lines
    // more than that, 6 tokens are spread over all of them.
    const auto lines = static_cast<size_t>(num_blocks());
    return ((lines + 15) / 32 * 32 + 16) * sizeof(ActivationBlock);
}

void BlockInput::prepare_row(const float* x, std::byte* out, float, Isa isa) const {
    const RoundRow round_row = round_row_of(isa);
    auto* blocks = reinterpret_cast<ActivationBlock*>(out);
    const int64_t whole = order_.empty() ? row_size_ / ActivationBlock::size : 0;
    if (whole) round_row(x, whole, blocks);
    for (int64_t block = whole; block < num_blocks(); block++) {
        float values[ActivationBlock::size] = {};
        const int64_t first = block * ActivationBlock::size;
        const int64_t count = std::min<int64_t>(ActivationBlock::size, row_size_ - first);
        for (int64_t k = 0; k < count; k++) values[k] = x[order_.empty() ? first + k : order_[first + k]];
        round_row(values, 1, blocks + block);
    }
}

bool BlockInput::equals(const InputFormat& other) const {
    const auto* same = dynamic_cast<const BlockInput*>(&other);
    return same && same->row_size_ == row_size_ && same->order_ == order_;
}

}  // namespace qk::linear
