#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "attention/kernels.h"
#include "scratch.h"
// All includes before the region, so that no header code gets these instructions.
#include "simd/target.h"

QK_OPEN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16,avx512vbmi,avx2,fma,f16c")

namespace qk::attention::amx {

constexpr Isa this_isa = Isa::amx;

namespace {
#include "simd/tiles.inl"
}  // namespace

#include "attention/lanes_avx512_vnni.inl"
#include "attention/kernels/codes.inl"
#include "attention/kernels/float8_pairs.inl"
#include "attention/kernels/rounding.inl"
#include "attention/kernels/attend.inl"
#include "attention/kernels/tiles_bf16.inl"
#include "attention/kernels/latent_tiles.inl"

// Rows in tiles need no floats, and integers are no integers there.
void prepare(const Layout& layout, const float* q, float factor, const Queries& queries, int row) {
    if (queries.values && (is_integer(layout.format) || layout.format == Format::f32))
        return avx512::prepare(layout, q, factor, queries, row);
    const int64_t size = layout.head_dim;
    for (int64_t d = 0; d < size; d += width) {
        const Float scaled = load(q + d) * splat(factor);
        if (queries.values) store(queries.values + row * size + d, scaled);
        const __m256bh rounded = _mm512_cvtneps_pbh(scaled.v);
        std::memcpy(queries.codes + row * size + d, &rounded, sizeof rounded);
    }
}

namespace {

bool is_rounded_by_tiles(Format format) {
    return format == Format::f16 || format == Format::int8 || format == Format::int4;
}

template <Format format>
void attend_float8_tiles(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    layout.has_token_scales() ? attend_in_tiles<Float8<format, false>, true>(layout, stretch, rows)
                              : attend_in_tiles<Float8<format, true>, false>(layout, stretch, rows);
}

}  // namespace

Isa attend(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    if (!rows.in_tiles) {
        avx512_bf16::attend(layout, stretch, rows);
        return this_isa;
    }
    switch (layout.format) {
        case Format::f16: attend_in_tiles<F16, false>(layout, stretch, rows); break;
        case Format::bf16: attend_in_tiles<Bf16, false>(layout, stretch, rows); break;
        case Format::e4m3: attend_float8_tiles<Format::e4m3>(layout, stretch, rows); break;
        case Format::e5m2: attend_float8_tiles<Format::e5m2>(layout, stretch, rows); break;
        case Format::int8: attend_in_tiles<Int8, false>(layout, stretch, rows); break;
        case Format::int4: attend_in_tiles<Int4, false>(layout, stretch, rows); break;
        default: avx512_bf16::attend(layout, stretch, rows); break;
    }
    return this_isa;
}

bool has_tiles(Format format) { return has_exact_tiles(format) || is_rounded_by_tiles(format); }

bool has_exact_tiles(Format format) { return format == Format::bf16 || is_float8(format); }

Isa attend_latents(const LatentRows& work) {
    work.in_tiles ? attend_latent_tiles(work) : void(avx512::attend_latents(work));
    return this_isa;
}

}  // namespace qk::attention::amx

QK_CLOSE_TARGET
