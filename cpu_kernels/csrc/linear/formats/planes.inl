// Planes of codes to bytes: block.h draws them. `from` is the plane of a step, `at` the rows that this vector has.

inline Bytes plane_vector(const uint8_t* from, int vector, int row) {
    return load_codes(from + vector * group_bytes + row * 4);
}

inline void read_plane_8(const uint8_t* from, int row, Bytes* codes) {
    for (int g = 0; g < step_groups; g++) codes[g] = plane_vector(from, g, row);
}

inline void read_plane_4(const uint8_t* from, int row, Bytes* codes) {
    for (int v = 0; v < 4; v++) {
        const Bytes both = plane_vector(from, v, row);
        codes[v] = both & 0x0f;
        codes[v + 4] = both >> 4 & 0x0f;
    }
}
