// Codes of 2, 3, 4 and 8 bits in a dense little-endian stream, as quant/formats/bits.py draws it: 8 codes, a
// byte each, are `bits` bytes of it. The codes fold together in halves, and unfold again, within one 64-bit word.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace qk::group_quant {

// A one in the lowest `bits` of each field of `field_bits`.
constexpr uint64_t fields(int bits, int field_bits) {
    uint64_t mask = 0;
    for (int at = 0; at < 64; at += field_bits) mask |= ((uint64_t{1} << bits) - 1) << at;
    return mask;
}

// 8 codes below 2**bits, a byte each -> bits 0 to 8 * bits - 1.
template <int bits>
inline uint64_t fold(uint64_t codes) {
    if constexpr (bits == 8) return codes;
    codes = (codes | codes >> (8 - bits)) & fields(2 * bits, 16);
    codes = (codes | codes >> 2 * (8 - bits)) & fields(4 * bits, 32);
    return (codes | codes >> 4 * (8 - bits)) & ((uint64_t{1} << 8 * bits % 64) - 1);
}

template <int bits>
inline uint64_t unfold(uint64_t stream) {
    if constexpr (bits == 8) return stream;
    stream = (stream | stream << 4 * (8 - bits)) & fields(4 * bits, 32);
    stream = (stream | stream << 2 * (8 - bits)) & fields(2 * bits, 16);
    return (stream | stream << (8 - bits)) & fields(bits, 8);
}

constexpr uint64_t all_bytes = 0x0101010101010101;

// Adds `value` to each byte, which wraps round.
inline uint64_t add_to_bytes(uint64_t bytes, uint8_t value) {
    constexpr uint64_t low = 0x7f * all_bytes;
    const uint64_t other = value * all_bytes;
    return ((bytes & low) + (other & low)) ^ ((bytes ^ other) & ~low);
}

template <int bits>
inline uint64_t packed(uint64_t codes) {
    return fold<bits>(add_to_bytes(codes, 1 << (bits - 1)));
}

template <int bits>
inline uint64_t unpacked(uint64_t stream) {
    return add_to_bytes(unfold<bits>(stream), static_cast<uint8_t>(-(1 << (bits - 1))));
}

// The bytes of 8 codes. One load each: a word put together in memory would wait for the stores before it.
template <int bits>
inline uint64_t load_stream(const uint8_t* from) {
    if constexpr (bits == 3) return from[0] | from[1] << 8 | from[2] << 16;
    using Word = std::conditional_t<bits == 2, uint16_t, std::conditional_t<bits == 4, uint32_t, uint64_t>>;
    Word word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

// q [count] int8 in -2**(bits - 1) .. 2**(bits - 1) - 1 -> [ceil(count * bits / 32)] words
template <int bits>
inline void pack_row(const int8_t* q, int64_t count, uint8_t* out) {
    uint8_t* const end = out + (count * bits + 31) / 32 * 4;
    uint64_t codes;
    int64_t i = 0;
    for (; i + 8 <= count; i += 8, out += bits) {
        std::memcpy(&codes, q + i, 8);
        codes = packed<bits>(codes);
        std::memcpy(out, &codes, bits);
    }
    std::memset(out, 0, static_cast<size_t>(end - out));
    if (i == count) return;
    codes = 0;
    std::memcpy(&codes, q + i, static_cast<size_t>(count - i));
    codes = packed<bits>(codes) & ((uint64_t{1} << (count - i) * bits) - 1);
    std::memcpy(out, &codes, static_cast<size_t>(((count - i) * bits + 7) / 8));
}

template <int bits>
inline void unpack_row(const uint8_t* stream, int64_t count, int8_t* q) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8, stream += bits) {
        const uint64_t eight = unpacked<bits>(load_stream<bits>(stream));
        std::memcpy(q + i, &eight, 8);
    }
    if (i == count) return;
    uint64_t codes = 0;
    std::memcpy(&codes, stream, static_cast<size_t>(((count - i) * bits + 7) / 8));
    codes = unpacked<bits>(codes);
    std::memcpy(q + i, &codes, static_cast<size_t>(count - i));
}

}  // namespace qk::group_quant
