#include "attention/store.h"

#include <cstring>

namespace qk::attention {

Blocks::Blocks(int64_t num_pages, int64_t heads, int64_t blocks_per_page, int64_t block_bytes)
    : heads_(heads),
      blocks_per_page_(blocks_per_page),
      block_bytes_(block_bytes),
      buffer_(static_cast<size_t>(num_pages * heads * blocks_per_page * block_bytes)) {}

void Blocks::grow(int64_t num_pages, int64_t blocks_per_page) {
    Blocks grown(num_pages, heads_, blocks_per_page, block_bytes_);
    for (int64_t page = 0; page < num_pages; page++)
        for (int64_t head = 0; head < heads_ && block_bytes_; head++)
            std::memcpy(grown.at(page, head, 0), at(page, head, 0),
                        static_cast<size_t>(blocks_per_page_ * block_bytes_));
    *this = std::move(grown);
}

Store::Store(const Layout& layout, int64_t num_pages, int64_t page_size, int64_t num_heads,
             std::vector<float> k_scale, std::vector<float> v_scale)
    : layout_(layout),
      num_pages_(num_pages),
      page_size_(page_size),
      num_heads_(num_heads),
      keys_{Blocks(num_pages, num_heads, page_size / block_tokens, layout.block_bytes()),
            Blocks(num_pages, per_tensor() ? 1 : num_heads, page_size / block_tokens, layout.scale_bytes()),
            std::move(k_scale)},
      values_{Blocks(num_pages, num_heads, page_size / block_tokens, layout.block_bytes()),
              Blocks(num_pages, per_tensor() ? 1 : num_heads, page_size / block_tokens, layout.scale_bytes()),
              std::move(v_scale)} {
    for (auto* given : {&keys_.given, &values_.given})
        if (given->empty()) given->assign(static_cast<size_t>(num_heads), 1.0f);
}

size_t Store::nbytes() const {
    return keys_.codes.size() + keys_.scales.size() + values_.codes.size() + values_.scales.size();
}

void Store::grow(int64_t page_size) {
    for (auto* side : {&keys_, &values_})
        for (auto* blocks : {&side->codes, &side->scales}) blocks->grow(num_pages_, page_size / block_tokens);
    page_size_ = page_size;
}

}  // namespace qk::attention
