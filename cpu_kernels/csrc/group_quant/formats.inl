// The kernels as group_quant.h declares them. Include it inside the namespace of an instruction set, which is this_isa.
#ifndef QK_GROUP_QUANT_KERNELS
#error "group_quant/formats.inl: include group_quant/kernels.inl before this file"
#endif

Grid fit(const float* x, int64_t count, int qmin, int qmax, bool symmetric) {
    return fit_grid(x, count, qmin, qmax, symmetric);
}
Isa round(const float* x, int64_t count, const Grid& grid, int qmin, int qmax, int8_t* out) {
    round_to_grid(x, count, grid, qmin, qmax, out);
    return this_isa;
}
Isa restore(const int8_t* q, int64_t count, const Grid& grid, float* out) {
    restore_from_grid(q, count, grid, out);
    return this_isa;
}
Isa restore_each(const int8_t* q, int64_t count, const float* scale, const float* zero_point, float* out) {
    restore_from_grids(q, count, scale, zero_point, out);
    return this_isa;
}
float absmax(const float* x, int64_t count) { return largest_magnitude(x, count); }
void to_halves(const float* x, int64_t count, float* out) { nearest_halves(x, count, out); }
Isa round_product(const float* x, int64_t count, float factor, int8_t* out) {
    round_times(x, count, factor, out);
    return this_isa;
}
