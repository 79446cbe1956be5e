#include "attention/store/store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace qk::attention {

static int64_t blocks_of(const Layout& layout, int64_t page_size, int64_t num_rings) {
    return (num_rings ? page_size : layout.num_encoded(page_size)) / block_tokens;
}

static size_t bytes_of(int64_t num_pages, int64_t heads, int64_t blocks_per_page, int64_t block_bytes) {
    int64_t bytes = num_pages;
    for (const int64_t factor : {heads, blocks_per_page, block_bytes})
        if (__builtin_mul_overflow(bytes, factor, &bytes))
            throw std::invalid_argument("num_pages, page_size, num_heads: got " + std::to_string(num_pages) + ", " +
                                        std::to_string(blocks_per_page * block_tokens) + " and " +
                                        std::to_string(heads) + ", expected fewer than 2^63 bytes");
    return static_cast<size_t>(bytes);
}

Blocks::Blocks(int64_t num_pages, int64_t heads, int64_t blocks_per_page, int64_t block_bytes)
    : heads_(heads),
      blocks_per_page_(blocks_per_page),
      block_bytes_(block_bytes),
      buffer_(Buffer::long_lived(bytes_of(num_pages, heads, blocks_per_page, block_bytes))) {}

void Blocks::copy_page(int64_t from, int64_t to) {
    if (block_bytes_) std::memmove(at(to, 0, 0), at(from, 0, 0), page_bytes());
}

void Blocks::add_pages(int64_t num_pages) {
    Blocks grown(num_pages, heads_, blocks_per_page_, block_bytes_);
    if (size()) std::memcpy(grown.data(), data(), size());
    *this = std::move(grown);
}

void Blocks::resize(int64_t num_pages, int64_t blocks_per_page) {
    Blocks resized(num_pages, heads_, blocks_per_page, block_bytes_);
    for (int64_t page = 0; page < num_pages; page++)
        for (int64_t head = 0; head < heads_ && block_bytes_; head++)
            std::memcpy(resized.at(page, head, 0), at(page, head, 0),
                        static_cast<size_t>(std::min(blocks_per_page_, blocks_per_page) * block_bytes_));
    *this = std::move(resized);
}

Store::Store(const Layout& layout, int64_t num_pages, int64_t page_size, int64_t num_heads, std::vector<float> k_scale,
             std::vector<float> v_scale, int64_t num_rings)
    : layout_(layout),
      num_pages_(num_pages),
      page_size_(page_size),
      num_heads_(num_heads),
      num_rings_(num_rings),
      keys_{Blocks(num_pages, num_heads, blocks_of(layout, page_size, num_rings), layout.block_bytes()),
            Blocks(num_pages, per_tensor() ? 1 : num_heads, blocks_of(layout, page_size, num_rings),
                   layout.scale_bytes()),
            std::move(k_scale)},
      values_{Blocks(num_pages, num_heads, blocks_of(layout, page_size, num_rings), layout.block_bytes()),
              Blocks(num_pages, per_tensor() ? 1 : num_heads, blocks_of(layout, page_size, num_rings),
                     layout.scale_bytes()),
              std::move(v_scale)} {
    if (layout.has_residual())
        ring_ = std::make_unique<Store>(Layout{Format::f16, Scales::given, layout.head_dim},
                                        num_rings ? num_rings : num_pages, ring_tokens, num_heads, std::vector<float>{},
                                        std::vector<float>{});
    for (auto* given : {&keys_.given, &values_.given})
        if (given->empty()) given->assign(static_cast<size_t>(num_heads), 1.0f);
}

size_t Store::nbytes() const {
    return keys_.codes.size() + keys_.scales.size() + values_.codes.size() + values_.scales.size() +
           (ring_ ? ring_->nbytes() : 0);
}

void Store::resize(int64_t page_size) {
    for (auto* side : {&keys_, &values_})
        for (auto* blocks : {&side->codes, &side->scales})
            blocks->resize(num_pages_, blocks_of(layout_, page_size, num_rings_));
    page_size_ = page_size;
}

void Store::add_pages(int64_t num_pages) {
    for (auto* side : {&keys_, &values_})
        for (auto* blocks : {&side->codes, &side->scales}) blocks->add_pages(num_pages);
    if (page_rings()) page_rings()->add_pages(num_pages);
    num_pages_ = num_pages;
}

void Store::copy_page(int64_t from, int64_t to) {
    for (auto* side : {&keys_, &values_})
        for (auto* blocks : {&side->codes, &side->scales}) blocks->copy_page(from, to);
    if (page_rings()) page_rings()->copy_page(from, to);
}

size_t Store::page_bytes() const {
    return keys_.codes.page_bytes() + keys_.scales.page_bytes() + values_.codes.page_bytes() +
           values_.scales.page_bytes() + (page_rings() ? page_rings()->page_bytes() : 0);
}

void Store::read_page(int64_t page, std::byte* to) const {
    for (const auto* side : {&keys_, &values_})
        for (const auto* blocks : {&side->codes, &side->scales})
            if (const size_t bytes = blocks->page_bytes()) {
                std::memcpy(to, blocks->at(page, 0, 0), bytes);
                to += bytes;
            }
    if (page_rings()) page_rings()->read_page(page, to);
}

void Store::write_page(int64_t page, const std::byte* from) {
    for (auto* side : {&keys_, &values_})
        for (auto* blocks : {&side->codes, &side->scales})
            if (const size_t bytes = blocks->page_bytes()) {
                std::memcpy(blocks->at(page, 0, 0), from, bytes);
                from += bytes;
            }
    if (page_rings()) page_rings()->write_page(page, from);
}

}  // namespace qk::attention
