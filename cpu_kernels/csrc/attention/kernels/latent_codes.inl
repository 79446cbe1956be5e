// Rows of latents to numbers, one row at a time: float32, or others for which there is a put_number.
#ifndef QK_ATTENTION_CODES
#error "attention/kernels/latent_codes.inl: include attention/kernels/codes.inl before this file"
#endif

inline void put_number(float* to, Float value) { store(to, value); }

// A group of codes: scale and minimum of integers, whose product and sum torch rounds one by one.
template <class Number>
inline void unpack_group(LatentFormat format, const std::byte* codes, const std::byte* scales, Number* out) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(codes);
    if (format == LatentFormat::fp8) {
        float scale;
        std::memcpy(&scale, scales, sizeof scale);
        const Float unit = splat(0x1p60f);  // twice 60 makes up for the 120 of load_e4m3
        for (int64_t d = 0; d < latent_group(LatentFormat::fp8); d += width)
            put_number(out + d, E4m3OrNan::at(codes, d) * unit * (splat(scale) * unit));
        return;
    }
    uint16_t halves[2];
    std::memcpy(halves, scales, sizeof halves);
    const Float scale = splat(half_to_float(halves[0])), minimum = splat(half_to_float(halves[1]));
    if (format == LatentFormat::int8) {
        for (int64_t d = 0; d < latent_group(LatentFormat::int8); d += width)
            put_number(out + d, fma(to_float(load_codes(bytes + d)), scale, minimum));
        return;
    }
    constexpr int64_t half = latent_group(LatentFormat::int4) / 2;
    for (int64_t d = 0; d < half; d += width) {
        const Int both = load_codes(bytes + d);
        put_number(out + d, fma(to_float(both & 15u), scale, minimum));
        put_number(out + half + d, fma(to_float(both >> 4), scale, minimum));
    }
}

template <class Number>
inline void unpack_codes(const LatentShape& shape, const std::byte* row, Number* out) {
    const int64_t group = latent_group(shape.format), codes_bytes = group * shape.scales_offset() / shape.value_dim;
    for (int64_t g = 0; g < shape.value_dim / group; g++)
        unpack_group(shape.format, row + g * codes_bytes, row + shape.scales_offset() + g * 4, out + g * group);
    for (int64_t d = 0; d < shape.head_dim - shape.value_dim; d += width)
        put_number(out + shape.value_dim + d, Bf16::at(row + shape.rope_offset(), d));
}

// Row of a token as head_dim numbers.
template <class Number>
inline void unpack_latent(const LatentShape& shape, const std::byte* row, Number* out) {
    switch (shape.format) {
        case LatentFormat::f32:
            for (int64_t d = 0; d < shape.head_dim; d += width) put_number(out + d, F32::at(row, d));
            break;
        case LatentFormat::f16:
            for (int64_t d = 0; d < shape.head_dim; d += width) put_number(out + d, F16::at(row, d));
            break;
        case LatentFormat::bf16:
            for (int64_t d = 0; d < shape.head_dim; d += width) put_number(out + d, Bf16::at(row, d));
            break;
        case LatentFormat::fp8:
        case LatentFormat::int8:
        case LatentFormat::int4: unpack_codes(shape, row, out); break;
    }
}

// Minus infinity for rows start, start + 1, ... that a head does not see.
inline void hide_latents(const LatentRows& work, int64_t start, int64_t count, float* scores) {
    for (int64_t head = 0; head < work.num_heads && work.seen[head] < start + count; head++)
        for (int64_t t = std::max<int64_t>(0, work.seen[head] - start); t < count; t++)
            scores[t * work.heads + head] = lowest;
}
