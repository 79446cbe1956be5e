// Attention over integers, with the dot_words of the instruction set.
#ifndef QK_ATTENTION_ATTEND
#error "attention/kernels/attend_integers.inl: include attention/kernels/attend.inl before this file"
#endif

void attend_integers(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    switch (layout.format) {
        case Format::int8: attend_as<Int8>(layout, stretch, rows); break;
        case Format::int4: attend_as<Int4>(layout, stretch, rows); break;
        case Format::kivi4: attend_as<Kivi4>(layout, stretch, rows); break;
        default: attend_as<Kivi2>(layout, stretch, rows); break;
    }
}
