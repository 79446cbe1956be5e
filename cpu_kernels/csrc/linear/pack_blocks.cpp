#include <algorithm>
#include <cstring>

#include "linear/block_weight.h"
#include "thread_pool.h"

namespace qk::linear {
namespace {

constexpr int largest_block = 256;

// A run of a block's bytes that is packed byte by byte, or two by two where they are float16.
struct Field {
    int first, size, element;
};

// How a format's block is read: its scales, in the order in which they are packed, and its codes.
struct BlockReader {
    const char* format;
    int bits;  // the planes follow from it: block.h
    Field fields[2];
    void (*codes)(const uint8_t* block, uint8_t* q);  // q [block_size], unsigned
};

void low_high_nibbles(const uint8_t* from, int count, uint8_t* q) {
    for (int j = 0; j < count; j++) {
        q[j] = from[j] & 15;
        q[j + count] = from[j] >> 4;
    }
}

// Bit j of `from` above the code's `at` lower ones.
void add_bits(const uint8_t* from, int at, uint8_t* q) {
    for (int j = 0; j < 32; j++) q[j] |= (from[j / 8] >> j % 8 & 1) << at;
}

// Runs of 32 codes that share bytes: byte j has two bits of code j of each of four runs.
void two_bits_of_runs(const uint8_t* from, uint8_t* q) {
    for (int run = 0; run < 4; run++)
        for (int j = 0; j < 32; j++) q[32 * run + j] = from[j] >> 2 * run & 3;
}

// Byte j has one bit of code j of each of eight runs of 32.
void add_bits_of_runs(const uint8_t* from, int at, uint8_t* q) {
    for (int run = 0; run < 8; run++)
        for (int j = 0; j < 32; j++) q[32 * run + j] |= (from[j] >> run & 1) << at;
}

void q4_0(const uint8_t* block, uint8_t* q) { low_high_nibbles(block + 2, 16, q); }
void q4_1(const uint8_t* block, uint8_t* q) { low_high_nibbles(block + 4, 16, q); }

void q5_0(const uint8_t* block, uint8_t* q) {
    low_high_nibbles(block + 6, 16, q);
    add_bits(block + 2, 4, q);
}

void q5_1(const uint8_t* block, uint8_t* q) {
    low_high_nibbles(block + 8, 16, q);
    add_bits(block + 4, 4, q);
}

void q8_0(const uint8_t* block, uint8_t* q) {
    for (int j = 0; j < 32; j++) q[j] = block[2 + j] ^ 128;  // q + 128
}

void q2_k(const uint8_t* block, uint8_t* q) {
    for (int half = 0; half < 2; half++) two_bits_of_runs(block + 16 + 32 * half, q + 128 * half);
}

void q3_k(const uint8_t* block, uint8_t* q) {
    for (int half = 0; half < 2; half++) two_bits_of_runs(block + 32 + 32 * half, q + 128 * half);
    add_bits_of_runs(block, 2, q);
}

void q4_k(const uint8_t* block, uint8_t* q) {
    for (int i = 0; i < 4; i++) low_high_nibbles(block + 16 + 32 * i, 32, q + 64 * i);
}

void q5_k(const uint8_t* block, uint8_t* q) {
    for (int i = 0; i < 4; i++) low_high_nibbles(block + 48 + 32 * i, 32, q + 64 * i);
    add_bits_of_runs(block + 16, 4, q);
}

void q6_k(const uint8_t* block, uint8_t* q) {
    for (int half = 0; half < 2; half++) {
        uint8_t high[128];
        two_bits_of_runs(block + 128 + 32 * half, high);
        low_high_nibbles(block + 64 * half, 64, q + 128 * half);
        for (int k = 0; k < 128; k++) q[128 * half + k] |= high[k] << 4;
    }
}

void iq4_xs(const uint8_t* block, uint8_t* q) {
    for (int i = 0; i < 8; i++) low_high_nibbles(block + 8 + 16 * i, 16, q + 32 * i);
}

constexpr BlockReader readers[] = {
    {"q4_0", 4, {{0, 2, 2}}, q4_0},
    {"q4_1", 4, {{0, 4, 2}}, q4_1},
    {"q5_0", 5, {{0, 2, 2}}, q5_0},
    {"q5_1", 5, {{0, 4, 2}}, q5_1},
    {"q8_0", 8, {{0, 2, 2}}, q8_0},
    {"q2_k", 2, {{80, 4, 2}, {0, 16, 1}}, q2_k},
    {"q3_k", 3, {{108, 2, 2}, {96, 12, 1}}, q3_k},
    {"q4_k", 4, {{0, 4, 2}, {4, 12, 1}}, q4_k},
    {"q5_k", 5, {{0, 4, 2}, {4, 12, 1}}, q5_k},
    {"q6_k", 6, {{208, 2, 2}, {192, 16, 1}}, q6_k},
    {"iq4_nl", 4, {{0, 2, 2}}, q4_0},
    {"iq4_xs", 4, {{0, 2, 2}, {2, 6, 1}}, iq4_xs},
};

uint32_t four_bytes(const uint8_t* from) {
    uint32_t four;
    std::memcpy(&four, from, 4);
    return four;
}

// Codes of a row and step, four k of a group at a time, into the planes of `bits` bits at `to`.
void pack_plane(const uint8_t* q, int shift, int bits, int row, uint8_t* to) {
    const uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
    for (int vector = 0; vector < bits; vector++) {
        uint32_t packed = 0;
        for (int i = 0; i < 8 / bits; i++) {
            const int group = bits == 4 ? vector + 4 * i : vector * (8 / bits) + i;
            packed |= (four_bytes(q + group * 4) >> shift & mask) << (i * bits);
        }
        std::memcpy(to + vector * group_bytes + row * 4, &packed, 4);
    }
}

}  // namespace

void pack_codes(const uint8_t* q, int bits, int row, uint8_t* to) {
    const int low = bits == 8 ? 8 : bits & 4 ? 4 : 2;
    pack_plane(q, 0, low, row, to);
    if (bits > low) pack_plane(q, low, bits - low, row, to + low * step_bytes_per_bit);
}

namespace {

void pack_block(const BlockReader& reader, int block_size, const uint8_t* block, int row, uint8_t* to) {
    for (const Field& field : reader.fields) {
        for (int i = 0; i < field.size; i += field.element, to += panel_rows * field.element)
            std::memcpy(to + row * field.element, block + field.first + i, field.element);
    }
    uint8_t q[largest_block];
    reader.codes(block, q);
    for (int k = 0; k < block_size; k += step_size, to += reader.bits * step_bytes_per_bit)
        pack_codes(q + k, reader.bits, row, to);
}

const BlockReader& reader_of(const BlockFormat& format) {
    const auto* found = std::find_if(std::begin(readers), std::end(readers), [&](const BlockReader& reader) {
        return format.name == reader.format;
    });
    if (found == std::end(readers)) throw std::logic_error(format.name + " has no reader");
    return *found;
}

}  // namespace

std::shared_ptr<Weight> pack_blocks(const BlockFormat& format, const uint8_t* blocks, int64_t num_rows,
                                    int64_t row_size) {
    const BlockReader& reader = reader_of(format);
    const int64_t num_blocks = row_size / format.block_size, row_bytes = num_blocks * format.block_bytes;
    const int block_steps = format.block_size / step_size, step_bytes = reader.bits * step_bytes_per_bit;
    const int header_bytes = format.block_bytes * panel_rows - block_steps * step_bytes;
    const PanelLayout layout((num_rows + panel_rows - 1) / panel_rows, row_size / step_size,
                        {block_steps, header_bytes, step_bytes});
    Buffer bytes = Buffer::long_lived(layout.nbytes());
    thread_pool()->run(layout.num_panels(), [&](int64_t panel) {
        const int64_t first = panel * panel_rows;
        const auto count = static_cast<int>(std::min<int64_t>(panel_rows, num_rows - first));
        if (count < panel_rows) layout.clear(panel, bytes.data());  // rows that are not there have scale 0
        for (int64_t b = 0; b < num_blocks; b++) {
            uint8_t* to = bytes.data() + layout.offset(panel, b * block_steps);
            for (int row = 0; row < count; row++)
                pack_block(reader, format.block_size, blocks + (first + row) * row_bytes + b * format.block_bytes, row,
                           to);
        }
    });
    return std::make_shared<BlockWeight>(format, format.name, num_rows, row_size, layout, std::move(bytes),
                                         BlockInput(row_size));
}

}  // namespace qk::linear
