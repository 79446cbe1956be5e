// Float8 as pairs of bfloat16, which holds every value of it, times queries and weights that are rounded to bfloat16:
// by 2^-8 of themselves at most, where rounding to e4m3 was by up to 2^-4.
#ifndef QK_ATTENTION_CODES
#error "attention/kernels/float8_pairs.inl: include attention/kernels/codes.inl before this file"
#endif
#define QK_ATTENTION_FLOAT8

// The low or the high byte of the bfloat16 of each code without its sign
struct ByteTable { alignas(64) uint8_t bytes[128]; };

// Exponents of `exponent_bits`, then mantissas; NaN codes finite unless `has_nan`.
constexpr uint16_t bf16_of_code(Format format, bool has_nan, int code) {
    const int mantissa_bits = format == Format::e4m3 ? 3 : 2, bias = format == Format::e4m3 ? 7 : 15;
    const int first_nan = format == Format::e4m3 ? 0x7f : 0x7c;
    if (code >= first_nan) return has_nan ? 0x7fc0 : 0;
    int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    if (exponent == 0) {  // subnormal: shifted until the leading bit is in its place, which no bfloat16 stores
        if (mantissa == 0) return 0;
        for (exponent = 1; mantissa >> mantissa_bits == 0; exponent--) mantissa <<= 1;
        mantissa &= (1 << mantissa_bits) - 1;
    }
    return static_cast<uint16_t>((exponent - bias + 127) << 7 | mantissa << (7 - mantissa_bits));
}

constexpr ByteTable byte_table(Format format, bool has_nan, int shift) {
    ByteTable table{};
    for (int code = 0; code < 128; code++)
        table.bytes[code] = static_cast<uint8_t>(bf16_of_code(format, has_nan, code) >> shift);
    return table;
}

// The entries of 64 codes, whose highest bits are not looked at
inline __m512i look_up(const ByteTable& table, Int codes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table.bytes), codes.v, _mm512_load_si512(table.bytes + 64));
}

template <Format format_, bool has_nan_>
struct Float8 {
    static constexpr Format format = format_;
    static constexpr int64_t lane_size = lane_bytes;
    static constexpr bool is_dot = true, has_nan = has_nan_;
    static constexpr int elements = 4;
    using Sum = Float;
    static constexpr ByteTable low_bytes = byte_table(format, has_nan, 0), high_bytes = byte_table(format, has_nan, 8);

    static Sum zero() { return splat(0.0f); }
    static void words(Int lane, Int* words) {
        constexpr int a_or_b_and_c = 0xf8;  // a truth table of vpternlog
        const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
        const __m512i low = look_up(low_bytes, lane);
        const __m512i high = _mm512_ternarylogic_epi32(look_up(high_bytes, lane), lane.v, sign, a_or_b_and_c);
        words[0] = {_mm512_unpacklo_epi8(low, high)};
        words[1] = {_mm512_unpackhi_epi8(low, high)};
    }
    // Codes of zero in place of all elements but begin <= e < end
    static Int keep(Int lanes, int begin, int end) {
        const auto mask = [&](int e) {
            return static_cast<int16_t>((e >= begin && e < end ? 0x00ff : 0) |
                                        (e + 1 >= begin && e + 1 < end ? 0xff00 : 0));
        };
        const __m512i first = _mm512_set1_epi16(mask(0)), second = _mm512_set1_epi16(mask(2));
        return {_mm512_and_si512(lanes.v, _mm512_unpacklo_epi64(first, second))};
    }
    static Float dot(Float sum, Int words, Int pair) {
        return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(words.v), reinterpret_cast<__m512bh>(pair.v))};
    }
    static void store_weights(int16_t* to, Float weights) {
        const __m256bh rounded = _mm512_cvtneps_pbh(weights.v);
        __builtin_memcpy(to, &rounded, sizeof rounded);
    }
};

// Codes are read as their values.
float code_unit(Format) { return 1.0f; }
