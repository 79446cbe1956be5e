// The formats in registers. Some are read as floats: the `raw` bits of a lane, then `unpack`, as many values as it has
// elements. Others (is_dot) are multiplied as they are: `words` are a lane's elements as pairs of 16 bits, for a
// multiply-add of pairs, `dot`. Include it after attention/lanes_*.inl and dot_words.
#ifndef QK_ATTENTION_LANES
#error "attention/kernels/codes.inl: include attention/lanes_*.inl before this file"
#endif
#define QK_ATTENTION_CODES

struct F32 {
    static constexpr Format format = Format::f32;
    static constexpr int64_t lane_size = 4;
    static constexpr bool is_dot = false;
    static constexpr int elements = 1;
    // Value i of a block's codes and those after it
    static Float at(const std::byte* codes, int64_t i) { return load(reinterpret_cast<const float*>(codes) + i); }
    static Float raw(const std::byte* codes, int64_t lane) { return at(codes, lane); }
    static void unpack(Float raw, Float* values) { values[0] = raw; }
};

struct F16 {
    static constexpr Format format = Format::f16;
    static constexpr int64_t lane_size = 2;
    static constexpr bool is_dot = false;
    static constexpr int elements = 1;
    static Float at(const std::byte* codes, int64_t i) {
        return load_f16(reinterpret_cast<const uint16_t*>(codes) + i);
    }
    static Float raw(const std::byte* codes, int64_t lane) { return at(codes, lane); }
    static void unpack(Float raw, Float* values) { values[0] = raw; }
};

struct Bf16 {
    static constexpr Format format = Format::bf16;
    static constexpr int64_t lane_size = 2;
    static constexpr bool is_dot = false;
    static constexpr int elements = 1;
    static Float at(const std::byte* codes, int64_t i) {
        return load_bf16(reinterpret_cast<const uint16_t*>(codes) + i);
    }
    static Float raw(const std::byte* codes, int64_t lane) { return at(codes, lane); }
    static void unpack(Float raw, Float* values) { values[0] = raw; }
};

// Float8 whose bits are the top ones of a lane, as a float: sign, exponent and mantissa move to their places in
// float32, whose bias is 120 (e4m3) or 112 (e5m2) more. A number that is subnormal in one is subnormal in the other.
template <Format format, bool has_nan>
inline Float float8_of_top(Int top) {
    constexpr bool is_e4m3 = format == Format::e4m3;
    const Int moved = shift_right_signed<is_e4m3 ? 4 : 3>(top) & (is_e4m3 ? 0x87f00000u : 0x8fe00000u);
    if constexpr (!has_nan) return float_of_bits(moved);
    return nan_from(moved, is_e4m3 ? 0x07f00000u : 0x0f800000u);
}

// Codes in neighbouring bytes, as latents have them
struct E4m3OrNan {
    static Float at(const std::byte* codes, int64_t i) {
        const Int bytes = load_codes(reinterpret_cast<const uint8_t*>(codes) + i);
        return float8_of_top<Format::e4m3, true>(bytes << 24);
    }
};

struct Int8 {
    static constexpr Format format = Format::int8;
    static constexpr int64_t lane_size = lane_bytes;
    static constexpr bool is_dot = true, has_nan = false;
    static constexpr int elements = 4;
    using Sum = Int;
    static Sum zero() { return splat_int(0); }
    static Sum dot(Sum sum, Int words, Int pair) { return dot_words(sum, words, pair); }
    static void words(Int lane, Int* words) {
        words[0] = lane & 0x00ff00ffu;
        words[1] = high_bytes(lane);
    }
};

struct Int4 {
    static constexpr Format format = Format::int4;
    static constexpr int64_t lane_size = lane_bytes;
    static constexpr bool is_dot = true, has_nan = false;
    static constexpr int elements = 8;
    using Sum = Int;
    static Sum zero() { return splat_int(0); }
    static Sum dot(Sum sum, Int words, Int pair) { return dot_words(sum, words, pair); }
    static void words(Int lane, Int* words) {
        words[0] = lane & 0x000f000fu;
        words[1] = high_bytes(lane) & 0x000f000fu;
        words[2] = (lane >> 4) & 0x000f000fu;
        words[3] = (lane >> 12) & 0x000f000fu;
    }
};

struct Kivi4 : Int4 { static constexpr Format format = Format::kivi4; };

struct Kivi2 {
    static constexpr Format format = Format::kivi2;
    static constexpr int64_t lane_size = lane_bytes;
    static constexpr bool is_dot = true, has_nan = false;
    static constexpr int elements = 16;
    using Sum = Int;
    static Sum zero() { return splat_int(0); }
    static Sum dot(Sum sum, Int words, Int pair) { return dot_words(sum, words, pair); }
    static void words(Int lane, Int* words) {
        words[0] = lane & 0x00030003u;
        words[1] = (lane >> 2) & 0x00030003u;
        words[2] = (lane >> 4) & 0x00030003u;
        words[3] = (lane >> 6) & 0x00030003u;
        words[4] = (lane >> 8) & 0x00030003u;
        words[5] = (lane >> 10) & 0x00030003u;
        words[6] = (lane >> 12) & 0x00030003u;
        words[7] = (lane >> 14) & 0x00030003u;
    }
};
