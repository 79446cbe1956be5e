// The part that all instruction sets share, over their `Dot`. Include it inside a target region.
#define QK_LINEAR_INT8_KERNELS

// y = (sum * (weight_scale * by.weight_scale)) * by.result; a factor of 1 rounds nothing.
struct Scales { float weight_scale, result; };

// Tails of tokens, which are in rows or in tiles.
struct RowTails {
    const Input& x;
    int64_t codes_per_token;

    const std::byte* at(int64_t token) const { return x.tokens + token * x.token_bytes + codes_per_token; }
};
struct TileTails {
    const Input& x;
    TileRows rows;

    const std::byte* at(int64_t token) const { return rows.tail(x, token); }
};

template <class Dot, class Tails = RowTails>
struct Scaled {
    Tails tails;
    const Target& target;

    const TokenTail& tail(int64_t token) const { return *reinterpret_cast<const TokenTail*>(tails.at(token)); }
    [[gnu::always_inline]] auto start(int64_t token) const { return Dot::broadcast(tail(token).offset); }
    [[gnu::always_inline]] void store(int64_t token, int64_t row, int64_t num_rows,
                                      const typename Dot::Sum& sum) const {
        const float scale = tail(token).scale;
        const Scales by = target.scaling == Scaling::w8a8 ? Scales{1, scale} : Scales{scale, per_product};
        Dot::store(sum, target.weight_scale + row, by, target.y + token * target.y_stride + row, num_rows);
    }
};
