// Blocks in, float32 out, `width` blocks at a time. Included after encode/lanes_*.inl, inside the same namespace.
//
// A format is a struct with block_size, block_bytes and
//     static void decode(const Int* words, Float* x)
//     words   [ceil(block_bytes / 4)] one block a lane, as little-endian words of 32 bits
//     x       [block_size] its weights

inline void load_words(const uint8_t* blocks, int lanes, int num_bytes, Int* words) {
    auto* flat = reinterpret_cast<uint8_t*>(words);
    for (int lane = 0; lane < lanes; lane++, blocks += num_bytes) {
        uint8_t* word = flat + 4 * lane;
        int i = 0;
        for (; i + 4 <= num_bytes; i += 4, word += 4 * width) std::memcpy(word, blocks + i, 4);
        if (i < num_bytes) std::memcpy(word, blocks + i, static_cast<size_t>(num_bytes - i));
    }
}

template <class Format>
Isa decode_blocks(const Job& job, int64_t begin, int64_t end) {
    constexpr int size = Format::block_size;
    Int words[(Format::block_bytes + 3) / 4];
    for (auto& word : words) word = splat_int(0);  // lanes without a block, and bytes behind its end
    Float x[size];
    for (int64_t block = begin; block < end; block += width) {
        const int lanes = static_cast<int>(end - block < width ? end - block : width);
        load_words(job.blocks + block * Format::block_bytes, lanes, Format::block_bytes, words);
        Format::decode(words, x);
        for (int i = 0; i < size; i += width) {
            transpose(x + i);
            for (int lane = 0; lane < lanes; lane++) store(job.out + (block + lane) * size + i, x[i + lane]);
        }
    }
    return this_isa;
}

// Fields of a word, lowest bit first.
template <int bits>
inline Int field(Int word, int first_bit) {
    return (word >> first_bit) & splat_int((1 << bits) - 1);
}

// Byte i of words, or `bits` of its bits from `shift` on.
template <int bits = 8>
inline Int byte_of(const Int* words, int i, int shift = 0) {
    return field<bits>(words[i / 4], 8 * (i % 4) + shift);
}

// Two's complement of 8 bits.
inline Float signed_byte(Int byte) {
    const Int sign = byte & splat_int(128);
    return to_float(byte - (sign + sign));
}

inline Float low_half(Int word) { return half_value(word & splat_int(0xffff)); }
inline Float high_half(Int word) { return half_value(word >> 16); }

// Code i of 32 whose first half is in the low nibbles of 16 bytes, the second in the high ones.
inline Int nibble(const Int* qs, int i) { return byte_of<4>(qs, i % 16, i / 16 * 4); }

// What follows a half at the start of a block: the words move down by two bytes.
template <int count>
struct AfterHalf {
    Int words[count];

    explicit AfterHalf(const Int* from) {
        for (int i = 0; i < count; i++) words[i] = from[i] >> 16 | from[i + 1] << 16;
    }
};
