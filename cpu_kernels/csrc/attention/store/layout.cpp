#include "attention/store/layout.h"

#include <stdexcept>
#include <string>

namespace qk::attention {

Format parse_format(std::string_view name) {
    std::string known;
    for (int i = 0; i < num_formats; i++) {
        if (name == format_names[i]) return static_cast<Format>(i);
        known += (known.empty() ? "" : ", ") + std::string(format_names[i]);
    }
    throw std::invalid_argument("format: got " + std::string(name) + ", expected one of " + known);
}

static int64_t head_step(Format format) {
    return is_integer(format) && format != Format::int8 ? int4_group : channel_step;
}
static int64_t most_channels(Format format) { return is_integer(format) ? max_integer_head : max_head; }

bool holds(Format format, int64_t head_dim) {
    return head_dim > 0 && head_dim % head_step(format) == 0 && head_dim <= most_channels(format);
}

std::string held_heads(Format format) {
    return "a multiple of " + std::to_string(head_step(format)) + " up to " + std::to_string(most_channels(format)) +
           " for " + format_names[static_cast<int>(format)];
}

int64_t Layout::row_bytes() const {
    switch (format) {
        case Format::f32: return 4 * head_dim;
        case Format::f16:
        case Format::bf16: return 2 * head_dim;
        case Format::int4:
        case Format::kivi4: return head_dim / 2;
        case Format::kivi2: return head_dim / 4;
        default: return head_dim;
    }
}

int64_t Layout::scale_bytes() const {
    if (is_float8(format)) return scales == Scales::given ? 0 : 4 * block_tokens;
    return groups() * 2 * 2 * block_tokens;
}

}  // namespace qk::attention
