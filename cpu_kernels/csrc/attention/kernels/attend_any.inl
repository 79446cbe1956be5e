// The choice of the kernel by format. Include it where attend_floats, attend_float8, attend_integers and this_isa are
// known.

Isa attend(const Layout& layout, const Stretch& stretch, const Rows& rows) {
    switch (layout.format) {
        case Format::f32:
        case Format::f16:
        case Format::bf16: attend_floats(layout, stretch, rows); break;
        case Format::e4m3:
        case Format::e5m2: attend_float8(layout, stretch, rows); break;
        case Format::int8:
        case Format::int4:
        case Format::kivi4:
        case Format::kivi2: attend_integers(layout, stretch, rows); break;
    }
    return this_isa;
}
