// Float8 as floats, for instruction sets that multiply no pairs of it.
#ifndef QK_ATTENTION_CODES
#error "attention/kernels/float8_floats.inl: include attention/kernels/codes.inl before this file"
#endif
#define QK_ATTENTION_FLOAT8

// NaN codes are read as NaN if `has_nan`. If each token has its scale, a token with a NaN has the scale NaN, and
// its codes need not be looked at.
template <Format format_, bool has_nan>
struct Float8 {
    static constexpr Format format = format_;
    static constexpr int64_t lane_size = lane_bytes;
    static constexpr bool is_dot = false;
    static constexpr int elements = 4;
    static Pairs raw(const std::byte* codes, int64_t lane) { return load_pairs(codes, lane); }
    static void unpack(Pairs raw, Float* values) {
        values[0] = float8_of_top<format, has_nan>(raw.first << 8);
        values[1] = float8_of_top<format, has_nan>(raw.first);
        values[2] = float8_of_top<format, has_nan>(raw.second << 8);
        values[3] = float8_of_top<format, has_nan>(raw.second);
    }
};

// Floats are read 1 / code_unit^2 times the codes' values. Half of that is made up for in their
// factors, half in the sum, so that neither leaves the range of float32.
float code_unit(Format format) { return format == Format::e4m3 ? 0x1p60f : format == Format::e5m2 ? 0x1p56f : 1.0f; }
