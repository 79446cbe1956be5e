// Blocks in, float32 out, one block after the other, `width` weights at a time. Include it after simd/half_*.inl,
// inside the same namespace.
//
// A format is a struct that derives from its layout and has
//     static void decode(const uint8_t* block, float* out)
// Its runs of codes that share a scale are 16 or 32 long: whole vectors of every instruction set.
#ifndef QK_SIMD_HALF
#error "decode/driver.inl: include simd/half_*.inl before this file"
#endif

template <class Format>
Isa decode_blocks(const Job& job, int64_t begin, int64_t end) {
    const uint8_t* block = job.blocks + begin * Format::block_bytes;
    float* out = job.out + begin * Format::block_size;
    for (int64_t i = begin; i < end; i++, block += Format::block_bytes, out += Format::block_size)
        Format::decode(block, out);
    return this_isa;
}

#define QK_DECODER(name, Format) \
    Isa name(const Job& job, int64_t begin, int64_t end) { return decode_blocks<Format>(job, begin, end); }

// In every lane: a float16, an integer.
inline Float half_at(const uint8_t* from) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return half_value(splat_int(bits));
}
inline Float whole(int value) { return to_float(splat_int(value)); }

// `bits` bits of each code, from first_bit on.
template <int bits>
inline Int field(Int codes, int first_bit) {
    return (codes >> first_bit) & splat_int((1 << bits) - 1);
}
