// Attention over the formats that are read as float32. No instruction set above AVX-512 has more for them, so those
// above call AVX-512's function.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/attend_floats.inl: include attention/kernels/attend.inl before this file"
#endif

void attend_floats(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    switch (layout.format) {
        case Format::f32: attend_as<F32>(layout, stretch, rows); break;
        case Format::f16: attend_as<F16>(layout, stretch, rows); break;
        default: attend_as<Bf16>(layout, stretch, rows); break;
    }
}
