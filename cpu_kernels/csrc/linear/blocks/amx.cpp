#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "linear/block.h"
#include "linear/dense.h"
#include "linear/tile_rows.h"
#include "scratch.h"
#include "simd/target.h"

QK_OPEN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx512vbmi,avx2,fma,f16c")

// Blocks and groups for many tokens: unpacked to bfloat16 tiles. A code is at most 8 bits, so that scale * code + minimum
// in float32, rounded once to 8 significant bits, is the weight to 2^-9 of itself.
namespace qk::linear::amx {

#include "linear/lanes_avx512_vnni.inl"

namespace {

#include "linear/formats/planes.inl"
#include "linear/formats/scales.inl"
#include "linear/formats/lattice.inl"
#include "linear/formats/groups.inl"
#include "linear/unpack.inl"
#include "linear/tile_product.inl"
namespace lanes {
#include "simd/float_avx512.inl"
#include "simd/int_avx512.inl"
#include "simd/silu.inl"
}  // namespace lanes

// Rows `row`, `row`, `row` + 1, `row` + 1, ... of a register of 16: a lane for each k of a pair.
inline __m512i twice_from(int row) {
    const __m512i first = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_add_epi32(first, _mm512_set1_epi32(row));
}

// The factors of a step for the first 8 rows and for the last, each in two lanes.
struct PairedFactors {
    __m512 scale[2], offset[2];

    explicit PairedFactors(const TileFactors& factors) {
        for (int half = 0; half < 2; half++) {
            scale[half] = _mm512_permutexvar_ps(twice_from(8 * half), _mm512_load_ps(factors.scale));
            offset[half] = _mm512_permutexvar_ps(twice_from(8 * half), _mm512_load_ps(factors.offset));
        }
    }
};

// Bytes k and k + 1 of 8 rows, from row `row` of a group on, at byte 2 of a lane each; the other bytes do not count.
constexpr auto byte_places(int row, int k) {
    std::array<uint8_t, 64> places{};
    for (int lane = 0; lane < 16; lane++)
        places[lane * 4 + 2] = static_cast<uint8_t>((row + lane / 2) * 4 + k + lane % 2);
    return places;
}

// The numbers of k and k + 1 of 8 rows. Codes of 7 bits follow the sign and exponent of 2^7 to 2^8, which makes them
// 128 + code.
template <int row, int k>
[[gnu::always_inline]] inline __m512 narrow_numbers(__m512i codes) {
    alignas(64) static constexpr auto places = byte_places(row, k);
    const __m512i exponent = _mm512_set1_epi32(0x43000000), from = _mm512_load_si512(places.data());
    return _mm512_castsi512_ps(_mm512_mask_permutexvar_epi8(exponent, 0x4444444444444444, from, codes));
}

// The same of 8 bits, which start in the middle of a byte: 256 + code. rows: 8 of them, each in two lanes
template <int k>
[[gnu::always_inline]] inline __m512 wide_numbers(__m512i rows) {
    const __m512i byte = _mm512_set1_epi32(0xff << 15), exponent = _mm512_set1_epi32(0x43800000);
    const __m512i shifted = k == 0 ? _mm512_sllv_epi32(rows, _mm512_set1_epi64(7ll << 32 | 15))
                                   : _mm512_srlv_epi32(rows, _mm512_set1_epi64(9ll << 32 | 1));
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(shifted, byte, exponent, 0xea));  // (shifted & byte) | exponent
}

// 4 k of 16 rows become two rows of a tile: the pairs (k, k + 1) and (k + 2, k + 3) of each row.
template <bool is_narrow>
[[gnu::always_inline]] inline void convert_group(__m512i codes, const PairedFactors& factors, std::byte* to) {
    __m512 numbers[2][2];
    if constexpr (is_narrow) {
        numbers[0][0] = narrow_numbers<0, 0>(codes), numbers[0][1] = narrow_numbers<8, 0>(codes);
        numbers[1][0] = narrow_numbers<0, 2>(codes), numbers[1][1] = narrow_numbers<8, 2>(codes);
    } else {
        for (int half = 0; half < 2; half++) {
            const __m512i rows = _mm512_permutexvar_epi32(twice_from(8 * half), codes);
            numbers[0][half] = wide_numbers<0>(rows), numbers[1][half] = wide_numbers<2>(rows);
        }
    }
    for (int pair = 0; pair < 2; pair++) {
        const auto weight = [&](int half) __attribute__((always_inline)) {
            return _mm512_fmadd_ps(numbers[pair][half], factors.scale[half], factors.offset[half]);
        };
        _mm512_store_si512(to + pair * tile_row_bytes,
                           reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(weight(1), weight(0))));
    }
}

template <class Format>
constexpr bool is_narrow() {
    return (is_biased(Format::sums) ? Format::lift + (1 << (Format::code_bits - 1)) : 1 << Format::code_bits) <= 128;
}

template <class Format>
constexpr float zero_of() {
    return (is_narrow<Format>() ? 128.0f : 256.0f) + (is_biased(Format::sums) ? Format::lift : 0);
}

constexpr bool has_halves(Sums sums) { return scales_per_step(sums) == 2 || minima_per_step(sums) == 2; }

template <class Format>
void unpack_all_scales(const uint8_t* block, const BlockShape& shape, const Stretch& out) {
    float *scale = out.scale, *minimum = out.minimum;
    for (int begin = 0; begin < out.num_steps; begin += shape.steps, block += shape.bytes(shape.steps)) {
        const int steps = std::min(shape.steps, out.num_steps - begin);
        unpack_scales<Format>(block, 0, steps, scale, minimum);
        scale += scales_of_block(Format::sums, steps), minimum += minima_of_block(Format::sums, steps);
    }
}

template <class Format>
void to_tile(const uint8_t* block, const BlockShape&, int step, const TileFactors* factors, std::byte* to) {
    Bytes codes[step_groups];
    Format::codes(block, block + Format::header_bytes + step * Format::step_bytes, 0, step, codes);
    constexpr int halves = has_halves(Format::sums) ? 2 : 1, groups = step_groups / halves;
    for (int half = 0; half < halves; half++) {
        const PairedFactors own(factors[half]);
        for (int group = half * groups; group < (half + 1) * groups; group++)
            convert_group<is_narrow<Format>()>(codes[group].v, own, to + group * 2 * tile_row_bytes);
    }
}

// The factors of step `step` and, if halves differ, `half` of it.
template <Sums sums>
[[gnu::always_inline]] inline void find_factors(const Stretch& stretch, float zero, int step, int half,
                                                TileFactors& to) {
    constexpr int num_scales = scales_per_step(sums), num_minima = minima_per_step(sums);
    const int span = is_span(sums) ? step / stretch.span : step;
    const __m512 below = _mm512_set1_ps(-zero);
    const __m512 scale = _mm512_load_ps(stretch.scale + (span * num_scales + half % num_scales) * panel_rows);
    __m512 offset = _mm512_mul_ps(scale, below);
    if constexpr (sums == Sums::span_zero) {
        const __m512 minimum = _mm512_load_ps(stretch.minimum + span * panel_rows);
        offset = _mm512_mul_ps(scale, _mm512_add_ps(below, minimum));
    } else if constexpr (num_minima != 0) {
        const float* minimum = stretch.minimum + (step * num_minima + half % num_minima) * panel_rows;
        offset = _mm512_fmadd_ps(scale, below, _mm512_load_ps(minimum));
    }
    _mm512_store_ps(to.scale, scale);
    _mm512_store_ps(to.offset, offset);
}

// Panels of one weight, or in turn of `num_weights` that have the same format and shape: panel p is number
// p / num_weights of weight p % num_weights.
template <Sums sums, int num_weights>
class UnpackedTiles {
    static constexpr int halves = has_halves(sums) ? 2 : 1;

public:
    explicit UnpackedTiles(const std::array<PackedPanels, num_weights>& weights)
        : weights_(weights), shape_(weights[0].layout.block()), most_(most_tiles(shape_)) {}

    int64_t count_at(int64_t k) const { return std::min<int64_t>(most_, weights_[0].layout.steps_left(k)); }

    void begin(int64_t panel, int64_t panels, int64_t k, int64_t count) {
        buffer_ ^= 1, unit_ = 0, num_units_ = panels * count, count_ = count;
        alignas(64) float scale[stretch_steps * 2 * panel_rows], minimum[stretch_steps * 2 * panel_rows];
        for (int64_t p = 0; p < panels; p++) {
            from_[p] = at(panel + p, k);
            const Stretch stretch{nullptr, scale, minimum, static_cast<int>(count), shape_.steps};
            kernels().scales(from_[p], shape_, stretch);
            for (int step = 0; step < count; step++)
                for (int half = 0; half < halves; half++)
                    find_factors<sums>(stretch, kernels().zero, step, half, factors_[p][step * halves + half]);
        }
    }

    // A tile.
    int64_t num_units() const { return num_units_; }
    void make_unit() {
        const int64_t panel = unit_ >= count_;
        const auto step = static_cast<int>(unit_++ - panel * count_);
        const uint8_t* const block = from_[panel] + step / shape_.steps * shape_.bytes(shape_.steps);
        kernels().to_tile(block, shape_, step % shape_.steps, factors_[panel] + step * halves,
                          tiles_[buffer_][panel] + step * tile_bytes);
    }
    TilePanels tiles() const { return {tiles_[buffer_][0], sizeof tiles_[0][0]}; }
    std::span<const std::byte> bytes(int64_t panel, int64_t k, int64_t count) const {
        const int64_t whole = count / shape_.steps, rest = count % shape_.steps;
        const int64_t size = whole * shape_.bytes(shape_.steps) + (rest ? shape_.bytes(rest) : 0);
        return {reinterpret_cast<const std::byte*>(at(panel, k)), static_cast<size_t>(size)};
    }

private:
    const TileKernels& kernels() const { return weights_[0].kernels; }
    const uint8_t* at(int64_t panel, int64_t k) const {
        const PackedPanels& weight = weights_[panel % num_weights];
        return weight.bytes + weight.layout.offset(panel / num_weights, k);
    }

    // Whole blocks: as many as fit k_block_tiles, one at least. Codes without scales of their own may begin anywhere.
    static int64_t most_tiles(const BlockShape& block) {
        const int64_t steps = block.header_bytes ? block.steps : 1;
        return std::max<int64_t>(1, k_block_tiles / steps) * steps;
    }

    const std::array<PackedPanels, num_weights>& weights_;
    const BlockShape& shape_;
    int buffer_ = 0;
    int64_t most_, count_ = 0, unit_ = 0, num_units_ = 0;
    const uint8_t* from_[2] = {};
    alignas(64) std::byte tiles_[2][2][stretch_steps * tile_bytes];
    TileFactors factors_[2][stretch_steps * halves];
};

// tdpbf16ps takes subnormal numbers for zeros. It sums even and odd k apart within a tile of 32.
struct Bf16 {
    template <int sums, int x, int weights>
    static void multiply() {
        tile_dot_bf16<sums, x, weights>();
    }
    static __m512 sum_of(const std::byte* row, int) { return _mm512_load_ps(row); }
};

struct Rows {
    float* y;
    int64_t y_stride;

    static int start(int64_t) { return 0; }
    [[gnu::always_inline]] void store(int64_t token, int64_t row, int64_t num_rows, __m512 sum) const {
        _mm512_mask_storeu_ps(y + token * y_stride + row, static_cast<__mmask16>((1u << num_rows) - 1), sum);
    }
};

struct AddedRows : Rows {
    const Addends& addends;

    [[gnu::always_inline]] void store(int64_t token, int64_t row, int64_t num_rows, __m512 sum) const {
        const auto mask = static_cast<__mmask16>((1u << num_rows) - 1);
        const auto add = [&](const float* from) __attribute__((always_inline)) {
            sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, from + row));
        };
        if (addends.bias) add(addends.bias);
        if (addends.residual) add(addends.residual + token * addends.residual_stride);
        Rows::store(token, row, num_rows, sum);
    }
};

// silu(gate) * up of the sums of two weights, as bfloat16 tiles that another product reads.
struct GatedTiles {
    const Place& to;
    const TileRows& rows;

    [[gnu::always_inline]] void store_pair(int64_t token, int64_t panel, __m512 gate, __m512 up) const {
        const __m512 gated = lanes::silu_mul({gate}, {up}).v;
        const int64_t column = panel / 2 * panel_rows;
        std::byte* const tile = rows.at(to.tokens, to.num_tokens, to.token + token, column / 32);
        _mm256_store_si256(reinterpret_cast<__m256i*>(tile + column % 32 * 2),
                           reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(gated)));
    }
};

template <Sums sums, int num_weights, class Output>
void multiply(const std::array<PackedPanels, num_weights>& weights, int64_t begin, int64_t end, const Input& x,
              const Output& output) {
    using Tiles = UnpackedTiles<sums, num_weights>;
    Tiles tiles(weights);
    TileProduct<Bf16, Tiles, Output>(tiles, weights[0].num_rows, weights[0].layout.num_steps(), x, output)
        .run(num_weights * begin, num_weights * end);
}

}  // namespace

void tile_of_codes(const uint8_t* codes, const TileFactors& factors, std::byte* to) {
    const PairedFactors paired(factors);
    for (int group = 0; group < step_groups; group++)
        convert_group<false>(load_codes(codes + group * group_bytes).v, paired, to + group * 2 * tile_row_bytes);
}

#define QK_PRODUCTS(name, Format) \
    extern constexpr TileKernels tiles_##name{unpack_all_scales<Format>, to_tile<Format>, zero_of<Format>()};
#define QK_LINEAR
#include "block_formats/all.inl"
#undef QK_LINEAR
QK_GROUP_CODES(QK_PRODUCTS)

Isa multiply_bf16(const PackedPanels& weight, int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride) {
#define QK_CASE(sums) \
    case Sums::sums: multiply<Sums::sums, 1>({weight}, begin, end, x, Rows{y, y_stride}); break;
    switch (weight.sums) { QK_SUMS(QK_CASE) }
#undef QK_CASE
    return Isa::amx;
}

Isa multiply_and_add_bf16(const PackedPanels& weight, int64_t begin, int64_t end, const Input& x, float* y,
                          int64_t y_stride, const Addends& addends) {
#define QK_CASE(sums) \
    case Sums::sums: multiply<Sums::sums, 1>({weight}, begin, end, x, AddedRows{{y, y_stride}, addends}); break;
    switch (weight.sums) { QK_SUMS(QK_CASE) }
#undef QK_CASE
    return Isa::amx;
}

Isa multiply_gated(const PackedPanels& gate, const PackedPanels& up, int64_t begin, int64_t end, const Input& x,
                   const Place& to, const TileRows& rows) {
#define QK_CASE(sums) \
    case Sums::sums: multiply<Sums::sums, 2>({gate, up}, begin, end, x, GatedTiles{to, rows}); break;
    switch (gate.sums) { QK_SUMS(QK_CASE) }
#undef QK_CASE
    return Isa::amx;
}

}  // namespace qk::linear::amx

#include "simd/close.h"
