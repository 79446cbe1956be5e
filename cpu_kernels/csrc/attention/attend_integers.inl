// Attention over integers, with the dot_words of the instruction set.
#ifndef QK_ATTENTION_ATTEND
#error "attention/attend_integers.inl: include attention/attend.inl before this file"
#endif

void attend_integers(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    layout.format == Format::int8 ? attend_as<Int8>(layout, stretch, rows) : attend_as<Int4>(layout, stretch, rows);
}
