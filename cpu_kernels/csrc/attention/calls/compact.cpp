#include <cstring>

#include "attention/attention.h"
#include "thread_pool.h"

namespace qk::attention {
namespace {

// A slot of one head: a token of a block.
struct Slot {
    std::byte* block;
    int64_t token;
};

// Copies `count` elements of a token, one in each block_tokens elements.
template <class Code>
void move_column(Slot from, Slot to, int64_t count) {
    const auto* source = reinterpret_cast<const Code*>(from.block) + from.token;
    auto* target = reinterpret_cast<Code*>(to.block) + to.token;
    for (int64_t i = 0; i < count; i++) target[i * block_tokens] = source[i * block_tokens];
}

// Lanes of keys are channels of one token, so that all their bytes move.
void move_key(const Layout& layout, Slot from, Slot to) {
    if (layout.format == Format::f32) return move_column<uint32_t>(from, to, layout.head_dim);
    const int elements = lane_elements(layout.format);
    if (elements == 1) return move_column<uint16_t>(from, to, layout.head_dim);
    for (int64_t d = 0, base = 0; d < layout.head_dim; d += elements, base += lane_bytes * block_tokens)
        for (int64_t e = 0; e < lane_bytes; e++)
            to.block[base + element_byte(layout.format, to.token, e)] =
                from.block[base + element_byte(layout.format, from.token, e)];
}

// Lanes of values are tokens of one channel: a byte or a nibble of each belongs to the token.
void move_value(const Layout& layout, Slot from, Slot to) {
    const int elements = lane_elements(layout.format);
    if (elements == 1) {
        std::memmove(to.block + to.token * layout.row_bytes(), from.block + from.token * layout.row_bytes(),
                     static_cast<size_t>(layout.row_bytes()));
        return;
    }
    const int64_t lanes_bytes = layout.head_dim * lane_bytes;
    const auto* source = reinterpret_cast<const uint8_t*>(from.block) + from.token / elements * lanes_bytes;
    auto* target = reinterpret_cast<uint8_t*>(to.block) + to.token / elements * lanes_bytes;
    const int64_t from_element = from.token % elements, to_element = to.token % elements;
    const int bits = elements == 4 ? 8 : 4, mask = (1 << bits) - 1;
    const int from_shift = from_element < 4 ? 0 : 4, to_shift = to_element < 4 ? 0 : 4;
    const int other = 0xff & ~(mask << to_shift);  // another token's nibble
    for (int64_t d = 0; d < layout.head_dim; d++) {
        const int code = source[element_byte(layout.format, d, from_element)] >> from_shift & mask;
        uint8_t& byte = target[element_byte(layout.format, d, to_element)];
        byte = static_cast<uint8_t>((byte & other) | code << to_shift);
    }
}

void move_scales(const Layout& layout, Slot from, Slot to) {
    if (is_float8(layout.format))
        move_column<uint32_t>(from, to, 1);
    else
        move_column<uint16_t>(from, to, 2 * layout.groups());
}

// Whether slots [slot, slot + block_tokens) of the target are those of one whole block of the source, in order.
bool is_whole_block(const int64_t* keep, int64_t slot, int64_t count) {
    const int64_t from = keep[slot];
    if (slot % block_tokens || from < 0 || from % block_tokens || slot + block_tokens > count) return false;
    for (int64_t i = 1; i < block_tokens; i++)
        if (keep[slot + i] != from + i) return false;
    return true;
}

void move_block(std::byte* from, std::byte* to, int64_t bytes) { std::memmove(to, from, static_cast<size_t>(bytes)); }

}  // namespace

void compact(Store& store, const Sequences& sequences, const int64_t* keep, int64_t count) {
    const Layout& layout = store.layout();
    const int64_t heads = store.num_heads();
    const auto slot_of = [&](Blocks& blocks, int64_t b, int64_t g, int64_t slot) {
        const auto [page, block] = sequences.locate(b, slot);
        return Slot{blocks.at(page, g, block), slot % block_tokens};
    };
    // Slots rise, so that no slot is written before it has been read.
    const auto compact_head = [&](int64_t i) {
        const int64_t b = i / heads, g = i % heads;
        const bool has_scales = layout.has_token_scales() && (g == 0 || !store.per_tensor());
        for (int64_t slot = 0; slot < count; slot++) {
            const int64_t from = keep[i * count + slot];
            if (from < 0) break;
            if (from == slot) continue;
            if (is_whole_block(keep + i * count, slot, count)) {  // a window that moves up has hardly any others
                for (Side* side : {&store.keys(), &store.values()}) {
                    move_block(slot_of(side->codes, b, g, from).block, slot_of(side->codes, b, g, slot).block,
                               layout.block_bytes());
                    if (has_scales)
                        move_block(slot_of(side->scales, b, g, from).block, slot_of(side->scales, b, g, slot).block,
                                   layout.scale_bytes());
                }
                slot += block_tokens - 1;
                continue;
            }
            for (Side* side : {&store.keys(), &store.values()}) {
                const Slot source = slot_of(side->codes, b, g, from), target = slot_of(side->codes, b, g, slot);
                side == &store.keys() ? move_key(layout, source, target) : move_value(layout, source, target);
                if (has_scales)
                    move_scales(layout, slot_of(side->scales, b, g, from), slot_of(side->scales, b, g, slot));
            }
        }
    };
    thread_pool()->run(sequences.count * heads, compact_head);
}

}  // namespace qk::attention
