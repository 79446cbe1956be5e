// From floats to codes, and the rotation: plain loops, which the compiler widens to the target region's registers.
// Only the rotation fuses a product and a sum, as torch does, so that every instruction set comes to the same bits,
// those of quant's codecs in torch.
#ifndef QK_ATTENTION_ROUNDING
#error "attention/kernels/encode.inl: include attention/kernels/rounding.inl before this file"
#endif

// Largest magnitude of x [size], NaN above all.
float absmax(const float* x, int64_t size) {
    uint32_t largest = 0;  // magnitudes order like their bits
    for (int64_t i = 0; i < size; i++) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    return std::bit_cast<float>(largest);
}

void rotate(const float* x, const float* cos, const float* sin, int64_t head_dim, float* out) {
    const int64_t half = head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];  // out may be x
        out[i] = __builtin_fmaf(b, sin[i], a * cos[i]);
        out[i + half] = __builtin_fmaf(a, sin[i + half], b * cos[i + half]);
    }
}

// ---- formats

template <class Round>
inline void encode_float8(const float* x, int64_t size, float scale, float largest, uint8_t* codes, Round round) {
    for (int64_t d = 0; d < size; d++) {
        const float scaled = x[d] / scale;
        const float clamped = scaled > largest ? largest : scaled < -largest ? -largest : scaled;  // NaN stays
        codes[d] = round(clamped);
    }
}

inline void encode_integers(const float* x, int64_t size, float levels, uint8_t* codes, uint16_t* scale,
                            uint16_t* minimum) {
    float lowest_value = x[0], highest_value = x[0];
    for (int64_t d = 0; d < size; d++) {
        lowest_value = x[d] < lowest_value ? x[d] : lowest_value;
        highest_value = x[d] > highest_value ? x[d] : highest_value;
    }
    const bool is_nan = !(absmax(x, size) <= std::numeric_limits<float>::infinity());
    if (is_nan) {  // of the whole group, as torch's minimum of it is
        *scale = *minimum = half_nan;
        std::fill_n(codes, size, uint8_t{0});
        return;
    }
    *minimum = to_f16(std::clamp(lowest_value, -half_max, half_max));
    const float low = half_to_float(*minimum), span = highest_value - low;
    *scale = to_f16(std::clamp(span / levels, 0x1p-24f, half_max));
    const float step = half_to_float(*scale);
    for (int64_t d = 0; d < size; d++) {
        const float code = (x[d] - low) / step;
        const float clamped = code > levels ? levels : code > 0 ? code : 0.0f;
        codes[d] = static_cast<uint8_t>(static_cast<int32_t>(nearest(clamped)));
    }
}

// Groups of int4_group channels, each with its scale and minimum. Not inlined: within `encode` the compiler does not widen
// these loops, and they take twice as long.
template <int levels>
[[gnu::noinline]] void encode_groups(const float* x, int64_t groups, uint8_t* codes, uint16_t* scales) {
    for (int64_t g = 0; g < groups; g++)
        encode_integers(x + g * int4_group, int4_group, levels, codes + g * int4_group, scales + 2 * g,
                        scales + 2 * g + 1);
}

void encode(const Layout& layout, const float* x, float scale, std::byte* codes, std::byte* scales) {
    const int64_t size = layout.head_dim;
    auto* bytes = reinterpret_cast<uint8_t*>(codes);
    auto* words = reinterpret_cast<uint16_t*>(codes);
    auto* halves = reinterpret_cast<uint16_t*>(scales);
    switch (layout.format) {
        case Format::f32: std::copy_n(x, size, reinterpret_cast<float*>(codes)); break;
        case Format::f16:
            for (int64_t d = 0; d < size; d++) words[d] = to_f16(x[d]);
            break;
        case Format::bf16:
            for (int64_t d = 0; d < size; d++) words[d] = to_bf16(x[d]);
            break;
        case Format::e4m3: encode_float8(x, size, scale, 448.0f, bytes, to_e4m3); break;
        case Format::e5m2: encode_float8(x, size, scale, 57344.0f, bytes, to_e5m2); break;
        case Format::int8: encode_integers(x, size, 255.0f, bytes, halves, halves + 1); break;
        case Format::int4:
        case Format::kivi4: encode_groups<15>(x, layout.groups(), bytes, halves); break;
        case Format::kivi2: encode_groups<3>(x, layout.groups(), bytes, halves); break;
    }
    if (is_float8(layout.format) && layout.has_token_scales()) std::memcpy(scales, &scale, sizeof scale);
}
