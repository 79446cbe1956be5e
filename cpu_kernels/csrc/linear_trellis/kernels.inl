// The product with a trellis code, for every instruction set. Include it after linear_trellis/lanes_*.inl.
#ifndef QK_TRELLIS_LANES
#error "linear_trellis/kernels.inl: include linear_trellis/lanes_*.inl before this file"
#endif

namespace {

// Words j - 1 and j of tile `tile` in the upper and the lower half of lane [j], one row in each.
template <int bits>
[[gnu::always_inline]] inline void load_words(const uint8_t* step, int tile, int row, Ints (&pair)[bits]) {
    const auto vector = [&](int i) { return load_rows(step + i * vector_bytes, row); };
    const auto rows_before = [&](int i) { return load_rows_before(step + i * vector_bytes, row); };
    if constexpr (bits == 1) {
        pair[0] = tile == 0 ? upper_upper(rows_before(0), vector(0)) : lower_lower(rows_before(0), vector(0));
    } else if constexpr (bits == 2) {
        pair[1] = vector(tile);
        pair[0] = lower_upper(rows_before(tile), pair[1]);
    } else if constexpr (bits == 3) {
        const Ints last = vector(2);
        pair[1] = vector(tile);
        pair[0] = tile == 0 ? upper_upper(rows_before(2), pair[1]) : lower_upper(rows_before(2), pair[1]);
        pair[2] = tile == 0 ? lower_upper(pair[1], last) : lower_lower(pair[1], last);
    } else {
        pair[1] = vector(2 * tile);
        pair[3] = vector(2 * tile + 1);
        pair[0] = lower_upper(rows_before(2 * tile + 1), pair[1]);
        pair[2] = lower_upper(pair[1], pair[3]);
    }
}

// is_whole: states have 16 bits. A shuffle then takes those one byte higher, and the two share their shift: with 4 bits
// 4 columns take 5 operations instead of 7, with 2 bits 8 take 11 instead of 15.
template <bool is_whole>
struct Hash {
    Ints mask, multiplier, addend;

    explicit Hash(const BlockShape& shape)
        : mask(splat_ints((1 << shape.state_bits) - 1)),
          multiplier(splat_ints(static_cast<int32_t>(trellis::multiplier))),
          addend(splat_ints(static_cast<int32_t>(trellis::addend))) {}

    // The hash of each row's state in a tile's column; the sum of its bytes is the value.
    template <int bits>
    [[gnu::always_inline]] Ints operator()(const Ints (&pair)[bits], int column) const {
        const int last = (column + 1) * bits - 1;  // the last bit of the state
        const int after = 15 - last % 16;  // bits after the state
        const Ints words = pair[last / 16];
        const Ints state = is_whole && after >= 8 ? second_bytes(words >> (after - 8)) : words >> after & mask;
        return multiply_add(state, multiplier, addend);
    }
};

// The activations of a stretch as sum_bytes wants them: [steps, tokens, 32]
template <int tokens>
inline void spread_activations(const std::byte* x, size_t token_bytes, int num_steps, int32_t* out) {
    for (int s = 0; s < num_steps; s++)
        for (int m = 0; m < tokens; m++) {
            const auto& block = reinterpret_cast<const ActivationBlock*>(x + m * token_bytes)[s];
            for (int k = 0; k < step_size; k += width, out += width)
                store_ints(out, spread_codes(reinterpret_cast<const uint8_t*>(block.codes) + k));
        }
}

// One token has sums enough to hide the latency of its only product.
constexpr int chains_of(int tokens) { return tokens == 1 ? 4 : tokens == 2 ? 2 : 1; }

template <int bits, int tokens, bool is_whole>
void multiply_direct(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x,
                     size_t token_bytes, float* out) {
    constexpr int chains = chains_of(tokens);
    alignas(64) int32_t spread[stretch_steps * tokens * step_size];
    spread_activations<tokens>(x, token_bytes, num_steps, spread);
    const Hash<is_whole> hash(shape);
    for (int row = 0; row < panel_rows; row += width) {
        Floats y[tokens];
        for (int m = 0; m < tokens; m++) y[m] = load(out + m * panel_rows + row);
        for (int s = 0; s < num_steps; s++) {
            const int32_t* own = spread + s * tokens * step_size;
            const auto block = [&](int m) -> const ActivationBlock& {
                return reinterpret_cast<const ActivationBlock*>(x + m * token_bytes)[s];
            };
            Ints sum[tokens][chains];
            for (int m = 0; m < tokens; m++) {
                sum[m][0] = splat_ints(block(m).offset / 64 * 255);  // -510 for each
                for (int c = 1; c < chains; c++) sum[m][c] = zero_ints();
            }
#pragma GCC unroll 2
            for (int tile = 0; tile < 2; tile++) {
                Ints pair[bits];
                load_words<bits>(stretch + s * shape.step_bytes, tile, row, pair);
#pragma GCC unroll 16
                for (int column = 0; column < side; column++) {
                    const Ints hashed = hash(pair, column);
#pragma GCC unroll 8
                    for (int m = 0; m < tokens; m++)
                        sum[m][column % chains] =
                            add_bytes(sum[m][column % chains], hashed, own + m * step_size + tile * side + column);
                }
            }
            for (int m = 0; m < tokens; m++) {
                Ints all = sum[m][0];
                for (int c = 1; c < chains; c++) all = all + sum[m][c];
                y[m] = multiply_add(to_floats(all), splat(block(m).scale), y[m]);
            }
        }
        for (int m = 0; m < tokens; m++) store(out + m * panel_rows + row, y[m]);
    }
}

// [tokens - 1]
template <int bits, int... tokens>
constexpr std::array<void (*)(const uint8_t*, const BlockShape&, int, const std::byte*, size_t, float*),
                     sizeof...(tokens)>
directs_of(std::integer_sequence<int, tokens...>) {
    return {multiply_direct<bits, tokens + 1, false>...};
}

template <int bits>
Isa direct(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x, size_t token_bytes,
           int num_tokens, float* y) {
    static constexpr auto directs = directs_of<bits>(std::make_integer_sequence<int, direct_tokens>{});
    if (num_tokens == 1 && shape.state_bits == trellis::most_state_bits)
        multiply_direct<bits, 1, true>(stretch, shape, num_steps, x, token_bytes, y);
    else
        directs[num_tokens - 1](stretch, shape, num_steps, x, token_bytes, y);
    return this_isa;
}

// 4 inputs of a row are the bytes of its lane.
template <int bits>
void decode(const uint8_t* stretch, const BlockShape& shape, const Stretch& out) {
    constexpr int lift = stretch_lift(Sums::span, 8);
    const Hash<false> hash(shape);
    for (int row = 0; row < panel_rows; row += width) {
        store(out.scale + row, splat(rounded_step));
        uint8_t* to = out.codes + row * 4;
        for (int i = 0; i < 2 * out.num_steps; i++) {
            Ints pair[bits];
            load_words<bits>(stretch + i / 2 * shape.step_bytes, i % 2, row, pair);
#pragma GCC unroll 4
            for (int column = 0; column < side; column += 4, to += group_bytes) {
                Ints total[4];
#pragma GCC unroll 4
                for (int k = 0; k < 4; k++) total[k] = sum_of_bytes(hash(pair, column + k));
                const Ints even = total[0] | total[2] << 16, odd = total[1] | total[3] << 16;
                const Bytes codes = as_bytes((even >> 2 & 0x00ff00ff) | (odd << 6 & static_cast<int>(0xff00ff00)));
                store_codes(to, lift == 128 ? codes : codes + (lift - 128));
            }
        }
    }
}

}  // namespace

#define QK_PRODUCTS(bits)                                                                                  \
    Isa direct_w##bits(const uint8_t* stretch, const BlockShape& shape, int num_steps, const std::byte* x, \
                       size_t token_bytes, int num_tokens, float* y) {                                     \
        return direct<bits>(stretch, shape, num_steps, x, token_bytes, num_tokens, y);                     \
    }                                                                                                      \
    void decode_w##bits(const uint8_t* stretch, const BlockShape& shape, const Stretch& out) {             \
        decode<bits>(stretch, shape, out);                                                                 \
    }
QK_PRODUCTS(1)
QK_PRODUCTS(2)
QK_PRODUCTS(3)
QK_PRODUCTS(4)
#undef QK_PRODUCTS
