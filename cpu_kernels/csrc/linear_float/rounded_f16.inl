// f16 weights rounded to bfloat16 on the way. Include it inside a target region with AVX512-BF16, after "buffer.h",
// <cstring> and the file that has multiply_panels.
#ifndef QK_LINEAR_FLOAT_KERNELS
#error "linear_float/rounded_f16.inl: include linear_float/kernels.inl before this file"
#endif

// A panel of f16 as the panel of bf16 that is nearest: pairs of k, the last one padded.
static void round_panel(const std::byte* f16, int64_t row_size, std::byte* bf16) {
    // Word 2 i of the result is row i of the even k, word 2 i + 1 that of the odd k, which the conversion put 16 words
    // further.
    alignas(64) uint16_t order[32];
    for (int i = 0; i < 32; i++) order[i] = static_cast<uint16_t>(i % 2 * 16 + i / 2);
    const __m512i interleave = _mm512_load_si512(order);
    for (int64_t k = 0; k < row_size; k += 2, f16 += 64, bf16 += 64) {
        const __m512 even = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(f16)));
        const __m512 odd = k + 1 < row_size
                               ? _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(f16 + 32)))
                               : _mm512_setzero_ps();
        const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
        _mm512_store_si512(bf16, _mm512_permutexvar_epi16(interleave, both));
    }
}

// Two panels at a time are rounded to the L2, 128 KiB at K = 2048, and multiplied with all tokens. Rows are padded with
// zeros to a multiple of so many pairs of k, as the tokens are.
template <class Dot, int64_t pair_multiple>
static void multiply_rounded(const Panels& weight, int64_t begin, int64_t end, const Input& x, const Target& target) {
    constexpr int64_t width = 2;
    const int64_t num_pairs = (weight.num_groups + 1) / 2, padded = round_up(num_pairs, pair_multiple);
    thread_local Buffer buffer;
    const auto needed = static_cast<size_t>(width * padded * 64);
    if (buffer.size() < needed) buffer = Buffer(needed);
    auto* rounded = reinterpret_cast<std::byte*>(buffer.data());
    for (int64_t panel = begin; panel < end; panel += width) {
        const int64_t count = std::min(width, end - panel);
        for (int64_t i = 0; i < count; i++) {
            std::byte* to = rounded + i * padded * 64;
            round_panel(weight.at(panel + i), weight.num_groups, to);
            std::memset(to + num_pairs * 64, 0, static_cast<size_t>(padded - num_pairs) * 64);
        }
        const int64_t row = panel * panel_rows;
        const Panels part{rounded, padded * 64, padded, weight.num_rows - row};
        const Target there{target.y + row, target.y_stride, target.add};
        multiply_panels<Dot>(part, 0, count, x, Stored<Dot>{there});
    }
}
