#include "tiles.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

// There where AddressSanitizer is in the process: the emulator's own accesses are checked like the program's.
extern "C" void* __asan_region_is_poisoned(void* begin, size_t size) __attribute__((weak));

namespace amx {
namespace {

Outcome undefined(const char* reason) { return {Fault::undefined_opcode, reason}; }
Outcome protection(const char* reason) { return {Fault::general_protection, reason}; }

bool poisoned(const void* begin, size_t size) {
    return &__asan_region_is_poisoned && __asan_region_is_poisoned(const_cast<void*>(begin), size);
}

// The operand of ldtilecfg and sttilecfg.
//
//     byte 0         1           2          16                      32          48               56          64
//          +---------+-----------+----------+-----------------------+-----------+----------------+-----------+
//          | palette | start row | reserved | bytes a row: 8 x u16  | reserved  | rows: 8 x u8   | reserved  |
//          +---------+-----------+----------+-----------------------+-----------+----------------+-----------+
struct Config {
    uint8_t palette, start_row, reserved0[14];
    uint16_t columns[num_tiles];
    uint8_t reserved1[16];
    uint8_t rows[num_tiles], reserved2[8];
};
static_assert(sizeof(Config) == 64);

template <size_t n>
bool all_zero(const uint8_t (&bytes)[n]) {
    return std::all_of(bytes, bytes + n, [](uint8_t byte) { return byte == 0; });
}

float of_bf16(uint32_t bits) {
    bits <<= 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// TDPBF16PS rounds to nearest even with subnormals as zeros, whatever MXCSR says, and raises no flags.
class FlushSubnormals {
public:
    FlushSubnormals() { _mm_setcsr(0x9fc0); }  // flush-to-zero, denormals-are-zeros, all exceptions masked
    ~FlushSubnormals() { _mm_setcsr(saved_); }

private:
    unsigned saved_ = _mm_getcsr();
};

}  // namespace

Outcome Tiles::configure(const void* memory) {
    Config config;
    std::memcpy(&config, memory, sizeof config);
    if (config.palette > 1) return protection("palette above 1");
    if (config.palette == 0) return release();
    if (!all_zero(config.reserved0) || !all_zero(config.reserved1) || !all_zero(config.reserved2))
        return protection("a reserved byte of the configuration is not 0");
    for (int tile = 0; tile < num_tiles; tile++) {
        if (config.columns[tile] > row_bytes) return protection("more than 64 bytes a row");
        if (config.rows[tile] > max_rows) return protection("more than 16 rows");
        if ((config.columns[tile] == 0) != (config.rows[tile] == 0)) return protection("rows without columns");
    }
    reset();
    configured_ = true;
    start_row_ = config.start_row;
    std::copy_n(config.columns, num_tiles, columns_);
    std::copy_n(config.rows, num_tiles, rows_);
    return {};
}

Outcome Tiles::store_config(void* memory) const {
    Config config{};
    if (configured_) {
        config.palette = 1;
        config.start_row = start_row_;
        std::copy_n(columns_, num_tiles, config.columns);
        std::copy_n(rows_, num_tiles, config.rows);
    }
    std::memcpy(memory, &config, sizeof config);
    return {};
}

// Field by field: a signal handler's stack may be too small for 8 KiB of tiles.
void Tiles::reset() {
    configured_ = false;
    start_row_ = 0;
    std::memset(columns_, 0, sizeof columns_);
    std::memset(rows_, 0, sizeof rows_);
    std::memset(data_, 0, sizeof data_);
}

Outcome Tiles::release() {
    reset();
    return {};
}

Outcome Tiles::check_configured(unsigned tile) const {
    if (!configured_ || tile >= num_tiles || rows_[tile] == 0) return undefined("this tile is not configured");
    return {};
}

Outcome Tiles::check_memory_access(unsigned tile) const {
    if (const Outcome outcome = check_configured(tile); outcome.fault != Fault::none) return outcome;
    if (columns_[tile] % 4) return undefined("bytes a row are no multiple of 4");
    if (start_row_ >= rows_[tile]) return undefined("the start row is not in the tile");
    return {};
}

Outcome Tiles::zero(unsigned tile) {
    if (const Outcome outcome = check_configured(tile); outcome.fault != Fault::none) return outcome;
    std::memset(data_[tile], 0, sizeof data_[tile]);
    start_row_ = 0;
    return {};
}

Outcome Tiles::load(unsigned tile, const uint8_t* base, int64_t stride) {
    if (const Outcome outcome = check_memory_access(tile); outcome.fault != Fault::none) return outcome;
    uint8_t rows[max_rows][row_bytes] = {};
    if (start_row_) std::memcpy(rows, data_[tile], size_t{start_row_} * row_bytes);
    for (int row = start_row_; row < rows_[tile]; row++) {
        const uint8_t* from = base + row * stride;
        if (poisoned(from, columns_[tile])) return {Fault::poisoned_memory, "a tile load reads poisoned memory"};
        std::memcpy(rows[row], from, columns_[tile]);  // faults as the processor would where nothing is mapped
    }
    std::memcpy(data_[tile], rows, sizeof rows);
    start_row_ = 0;
    return {};
}

Outcome Tiles::store(unsigned tile, uint8_t* base, int64_t stride) {
    if (const Outcome outcome = check_memory_access(tile); outcome.fault != Fault::none) return outcome;
    for (int row = start_row_; row < rows_[tile]; row++) {
        uint8_t* to = base + row * stride;
        if (poisoned(to, columns_[tile])) return {Fault::poisoned_memory, "a tile store writes poisoned memory"};
        std::memcpy(to, data_[tile][row], columns_[tile]);
    }
    start_row_ = 0;
    return {};
}

Outcome Tiles::check_product(unsigned destination, unsigned a, unsigned b) const {
    if (destination == a || destination == b || a == b)
        return undefined("the three tiles of a product are not distinct");
    for (const unsigned tile : {destination, a, b})
        if (const Outcome outcome = check_configured(tile); outcome.fault != Fault::none) return outcome;
    if ((columns_[destination] | columns_[a] | columns_[b]) % 4) return undefined("bytes a row are no multiple of 4");
    if (columns_[destination] != columns_[b]) return undefined("destination and second source differ in columns");
    if (rows_[destination] != rows_[a]) return undefined("destination and first source differ in rows");
    if (columns_[a] / 4 != rows_[b]) return undefined("the sources differ in the dimension that is summed over");
    return {};
}

// Sums wrap around at 32 bits: nothing saturates.
template <class A, class B>
void Tiles::multiply_int8(unsigned destination, unsigned a, unsigned b) {
    for (int m = 0; m < rows_[destination]; m++) {
        uint32_t sums[row_bytes / 4];
        std::memcpy(sums, data_[destination][m], sizeof sums);
        for (int k = 0; k < columns_[a] / 4; k++)
            for (int n = 0; n < columns_[destination] / 4; n++)
                for (int i = 0; i < 4; i++)
                    sums[n] += static_cast<uint32_t>(static_cast<A>(data_[a][m][4 * k + i]) *
                                                     static_cast<B>(data_[b][k][4 * n + i]));
        std::memcpy(data_[destination][m], sums, sizeof sums);
    }
}

// Even and odd k have a chain of fused multiply-adds each, which meet at the end.
__attribute__((target("fma"))) void Tiles::multiply_bf16(unsigned destination, unsigned a, unsigned b) {
    const FlushSubnormals flush;
    for (int m = 0; m < rows_[destination]; m++) {
        float sums[row_bytes / 4], even[row_bytes / 4] = {}, odd[row_bytes / 4] = {};
        std::memcpy(sums, data_[destination][m], sizeof sums);
        for (int k = 0; k < columns_[a] / 4; k++) {
            uint32_t pair_a, pair_b[row_bytes / 4];
            std::memcpy(&pair_a, &data_[a][m][4 * k], 4);
            std::memcpy(pair_b, data_[b][k], sizeof pair_b);
            for (int n = 0; n < columns_[destination] / 4; n++) {
                even[n] = __builtin_fmaf(of_bf16(pair_a & 0xffff), of_bf16(pair_b[n] & 0xffff), even[n]);
                odd[n] = __builtin_fmaf(of_bf16(pair_a >> 16), of_bf16(pair_b[n] >> 16), odd[n]);
            }
        }
        for (int n = 0; n < row_bytes / 4; n++) {
            volatile float both = even[n] + odd[n];  // volatile: neither moved out of the flushing scope nor joined
            volatile float sum = sums[n] + both;
            sums[n] = sum;
        }
        std::memcpy(data_[destination][m], sums, sizeof sums);
    }
}

void Tiles::clear_outside(unsigned tile) {
    for (int row = 0; row < max_rows; row++) {
        const int columns = row < rows_[tile] ? columns_[tile] : 0;
        std::memset(data_[tile][row] + columns, 0, static_cast<size_t>(row_bytes - columns));
    }
}

Outcome Tiles::multiply(Op op, unsigned destination, unsigned a, unsigned b) {
    if (const Outcome outcome = check_product(destination, a, b); outcome.fault != Fault::none) return outcome;
    switch (op) {
        case Op::tdpbssd: multiply_int8<int8_t, int8_t>(destination, a, b); break;
        case Op::tdpbsud: multiply_int8<int8_t, uint8_t>(destination, a, b); break;
        case Op::tdpbusd: multiply_int8<uint8_t, int8_t>(destination, a, b); break;
        case Op::tdpbuud: multiply_int8<uint8_t, uint8_t>(destination, a, b); break;
        default: multiply_bf16(destination, a, b);
    }
    clear_outside(destination);
    start_row_ = 0;
    return {};
}

}  // namespace amx
