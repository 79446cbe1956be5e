// Blocks in, blocks out, `width` of them at a time. Include it after simd/half_*.inl, inside the same namespace.
//
// A format is a struct that derives from its layout and has
//     template <bool weighted> static void encode(const Float* x, const Float* w, bool best, Int* words)
//     x, w    [block_size] the weights of one block per lane, and their importance (without: not to be read)
//     words   [ceil(block_bytes / 4)] the block as little-endian words of 32 bits
#ifndef QK_SIMD_HALF
#error "encode/driver.inl: include simd/half_*.inl before this file"
#endif

// 1 / a, and 0 where a is 0 or so small that its inverse is no finite float32: quant/formats/bits.py.
inline Float inverse(Float a) {
    const Mask usable = abs(a) >= splat(0x1p-126f);
    return select(usable, splat(1.0f) / select(usable, a, splat(1.0f)), splat(0.0f));
}

inline Float clamp(Float a, float low, float high) { return min(max(a, splat(low)), splat(high)); }

// float16 bits, beyond the range those of the largest finite value. Adding 0 makes -0 a 0: which of the two a
// maximum or minimum of both returns differs from one instruction set to the next.
inline Int stored_half(Float a) { return half_bits(clamp(a, -65504.0f, 65504.0f) + splat(0.0f)); }

template <bool weighted>
inline Float times_importance(const Float* w, int i, Float a) {
    if constexpr (weighted) return w[i] * a;
    return a;
}

// rows[lane][0..count) goes to lane `lane` of to[0..count); count is a multiple of `width`.
inline void load_lanes(const float* const* rows, int count, Float* to) {
    for (int i = 0; i < count; i += width) {
        for (int lane = 0; lane < width; lane++) to[i + lane] = load(rows[lane] + i);
        transpose(to + i);
    }
}

inline void store_lanes(const Int* words, int lanes, int num_bytes, uint8_t* to) {
    const auto* flat = reinterpret_cast<const uint8_t*>(words);
    for (int lane = 0; lane < lanes; lane++, to += num_bytes) {
        const uint8_t* word = flat + 4 * lane;
        int i = 0;
        for (; i + 4 <= num_bytes; i += 4, word += 4 * width) std::memcpy(to + i, word, 4);
        if (i < num_bytes) std::memcpy(to + i, word, static_cast<size_t>(num_bytes - i));
    }
}

template <class Format>
Isa encode_blocks(const Job& job, int64_t begin, int64_t end) {
    constexpr int size = Format::block_size;
    Float x[size], w[size];
    Int words[(Format::block_bytes + 3) / 4];
    const float* rows[width];
    for (int64_t block = begin; block < end; block += width) {
        const int lanes = static_cast<int>(end - block < width ? end - block : width);
        const auto block_of = [&](int lane) { return lane < lanes ? block + lane : block; };  // idle lanes repeat one
        for (int lane = 0; lane < width; lane++) rows[lane] = job.blocks + block_of(lane) * size;
        load_lanes(rows, size, x);
        if (job.importance) {
            for (int lane = 0; lane < width; lane++)
                rows[lane] = job.importance + block_of(lane) % job.importance_period * size;
            load_lanes(rows, size, w);
            Format::template encode<true>(x, w, job.best, words);
        } else {
            Format::template encode<false>(x, nullptr, job.best, words);
        }
        store_lanes(words, lanes, Format::block_bytes, job.out + block * Format::block_bytes);
    }
    return this_isa;
}

#define QK_ENCODER(name, Format) \
    Isa name(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Format>(job, begin, end); }
