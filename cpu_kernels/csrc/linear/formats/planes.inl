// Planes of codes to bytes: block.h draws them. `from` is the plane of a step, `row` the first that the vector has.

inline Bytes plane_vector(const uint8_t* from, int vector, int row) {
    return next_codes(from + vector * group_bytes + row * 4);
}

// Some bits of each byte, moved from bit `from` to bit `to`.
inline Bytes move_bits(Bytes a, int mask, int from, int to) {
    const Bytes moved = to > from ? a << (to - from) : to < from ? a >> (from - to) : a;
    return moved & (mask << to);
}

inline void read_plane_8(const uint8_t* from, int row, Bytes* codes) {
    for (int g = 0; g < step_groups; g++) codes[g] = plane_vector(from, g, row);
}

inline void read_plane_4(const uint8_t* from, int row, Bytes* codes) {
    for (int v = 0; v < 4; v++) {
        const Bytes both = plane_vector(from, v, row);
        codes[v] = move_bits(both, 15, 0, 0);
        codes[v + 4] = move_bits(both, 15, 4, 0);
    }
}

inline void read_plane_2(const uint8_t* from, int row, Bytes* codes) {
    for (int v = 0; v < 2; v++) {
        const Bytes four = plane_vector(from, v, row);
        for (int i = 0; i < 4; i++) codes[4 * v + i] = move_bits(four, 3, 2 * i, 0);
    }
}

// A second plane, of the bits above the first one's.
inline void add_plane_2(const uint8_t* from, int row, int at, Bytes* codes) {
    for (int v = 0; v < 2; v++) {
        const Bytes four = plane_vector(from, v, row);
        for (int i = 0; i < 4; i++) codes[4 * v + i] = codes[4 * v + i] | move_bits(four, 3, 2 * i, at);
    }
}

inline void add_plane_1(const uint8_t* from, int row, int at, Bytes* codes) {
    const Bytes eight = plane_vector(from, 0, row);
    for (int g = 0; g < step_groups; g++) codes[g] = codes[g] | move_bits(eight, 1, g, at);
}
