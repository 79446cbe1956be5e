// The step of the Viterbi algorithm, for every instruction set. End i is reached from the states i + j * num_ends, one
// for each symbol j that leaves; such a state was the end (i + j * num_ends) >> bits before its newest symbol came.
#ifndef QK_SIMD_INT
#error "trellis/kernels.inl: include simd/lanes_*.inl before this file"
#endif

template <int bits>
void step_of(int64_t num_ends, const float* values, const float* cost, float x, float* next, uint8_t* oldest) {
    const int64_t stride = num_ends >> bits;
    int32_t lane_of[16];
    for (int t = 0; t < 16; t++) lane_of[t] = t >> bits;
    const Int of_lane = load_int(lane_of);
    const Float target = splat(x);
    for (int64_t i = 0; i < num_ends; i += width) {
        Float least = splat(std::numeric_limits<float>::infinity());
        Int chosen = splat_int(0);
#pragma GCC unroll 16
        for (int j = 0; j < 1 << bits; j++) {
            const Float error = load(values + i + j * num_ends) - target;
            const Float total = look_up(cost + (i >> bits) + j * stride, of_lane) + error * error;
            const Mask better = total < least;
            least = select(better, total, least);
            chosen = select(better, splat_int(j), chosen);
        }
        store(next + i, least);
        store_bytes(reinterpret_cast<int8_t*>(oldest + i), chosen, width);
    }
}

Isa step(const Code& code, const float* values, const float* cost, float x, float* next, uint8_t* oldest) {
    constexpr decltype(&step_of<1>) of_bits[] = {step_of<1>, step_of<2>, step_of<3>, step_of<4>};
    of_bits[code.bits - 1](code.num_ends(), values, cost, x, next, oldest);
    return this_isa;
}
