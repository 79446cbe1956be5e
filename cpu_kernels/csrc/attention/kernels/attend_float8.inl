// Attention over float8, with the Float8 of float8_floats.inl or float8_pairs.inl.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/attend_float8.inl: include attention/kernels/attend.inl before this file"
#endif

template <Format format>
inline void attend_float8_as(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    layout.has_token_scales() ? attend_as<Float8<format, false>>(layout, stretch, rows)
                              : attend_as<Float8<format, true>>(layout, stretch, rows);
}

void attend_float8(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    layout.format == Format::e4m3 ? attend_float8_as<Format::e4m3>(layout, stretch, rows)
                                  : attend_float8_as<Format::e5m2>(layout, stretch, rows);
}
