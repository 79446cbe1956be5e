// The formats as registers of floats: value i of a block's codes and those after it (Layout::code_unit).

struct F32 {
    static constexpr Format format = Format::f32;
    static Float at(const std::byte* codes, int64_t i) { return load(reinterpret_cast<const float*>(codes) + i); }
};

struct F16 {
    static constexpr Format format = Format::f16;
    static Float at(const std::byte* codes, int64_t i) {
        return load_f16(reinterpret_cast<const uint16_t*>(codes) + i);
    }
};

struct Bf16 {
    static constexpr Format format = Format::bf16;
    static Float at(const std::byte* codes, int64_t i) {
        return load_bf16(reinterpret_cast<const uint16_t*>(codes) + i);
    }
};

// Where each token has its scale, a token with a NaN has the scale NaN, and its codes need not be looked at.
struct E4m3 {
    static constexpr Format format = Format::e4m3;
    static Float at(const std::byte* codes, int64_t i) {
        return load_e4m3(reinterpret_cast<const uint8_t*>(codes) + i);
    }
};

struct E4m3OrNan {
    static constexpr Format format = Format::e4m3;
    static Float at(const std::byte* codes, int64_t i) {
        return load_e4m3_or_nan(reinterpret_cast<const uint8_t*>(codes) + i);
    }
};

struct E5m2 {
    static constexpr Format format = Format::e5m2;
    static Float at(const std::byte* codes, int64_t i) {
        return load_e5m2(reinterpret_cast<const uint8_t*>(codes) + i);
    }
};

struct Int8 {
    static constexpr Format format = Format::int8;
    static constexpr int channels = 2;  // of a token that lie side by side in a block of keys
    static Float at(const std::byte* codes, int64_t i) {
        return to_float(load_bytes(reinterpret_cast<const uint8_t*>(codes) + i));
    }
    // sum += q . keys over `channels` channels, the first of them d, for `width` tokens
    static Int dot_keys(Int sum, const std::byte* codes, int64_t d, int lane, const int16_t* q) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(codes) + d * block_tokens + lane * 2;
        return dot(sum, load_pairs(bytes), splat_pair(q + d));
    }
};

struct Int4 {
    static constexpr Format format = Format::int4;
    static constexpr int channels = 4;
    static Int dot_keys(Int sum, const std::byte* codes, int64_t d, int lane, const int16_t* q) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(codes) + d / 2 * block_tokens + lane * 2;
        const Int pairs = load_pairs(bytes);
        sum = dot(sum, low_nibble_pairs(pairs), splat_pair(q + d));
        return dot(sum, high_nibble_pairs(pairs), splat_pair(q + d + 2));
    }
};

// out[i] = value i and those after it, i a multiple of width; int4 takes a group at a time, of which a byte holds one
// channel of either half.
template <class Code, int vecs>
inline void load_values(const std::byte* codes, int64_t i, Float* out) {
    if constexpr (Code::format == Format::int4) {
        static_assert(vecs * width == int4_group);
        for (int v = 0; v < vecs / 2; v++) {
            const Int bytes = load_bytes(reinterpret_cast<const uint8_t*>(codes) + i / 2 + v * width);
            out[v] = to_float(low_nibbles(bytes));
            out[v + vecs / 2] = to_float(high_nibbles(bytes));
        }
    } else {
        for (int v = 0; v < vecs; v++) out[v] = Code::at(codes, i + v * width);
    }
}
