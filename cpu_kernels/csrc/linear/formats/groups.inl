// Integers of 2, 3, 4 or 8 bits with a float16 scale for a group, and where asymmetric an int8 zero point.
// A block is a group, or 512 k of a longer one.

template <int stored_bits>
struct GroupCodes {
    static constexpr int bits = stored_bits;
    static constexpr int block_steps = 1;  // at least; BlockShape says how many
    static constexpr int step_bytes = bits * step_bytes_per_bit;

    static constexpr int stored_lift = 1 << (bits - 1);  // the stored code is q + this

    static void read(const uint8_t* from, int row, Bytes* to) {
        if constexpr (bits == 8) read_plane_8(from, row, to);
        if constexpr (bits == 4) read_plane_4(from, row, to);
        if constexpr (bits <= 3) read_plane_2(from, row, to);
        if constexpr (bits == 3) add_plane_1(from + 2 * step_bytes_per_bit, row, 2, to);
    }
};

template <int bits>
struct Group : GroupCodes<bits> {
    static constexpr Sums sums = Sums::span;
    static constexpr int lift = GroupCodes<bits>::stored_lift, code_bits = bits;
    static constexpr int header_bytes = panel_rows * 2;  // scale

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        *scale = load_halves(block + row * 2);
    }
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) {
        GroupCodes<bits>::read(from, row, to);
    }
};

// q - zero_point fits a byte: the zero point is taken off the codes.
template <int bits>
struct AsymmetricGroup : GroupCodes<bits> {
    static constexpr Sums sums = Sums::span;
    static constexpr int code_bits = 8, lift = stretch_lift(sums, code_bits);
    static constexpr int header_bytes = panel_rows * 3;  // scale, zero point

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats*) {
        *scale = load_halves(block + row * 2);
    }
    static void codes(const uint8_t* block, const uint8_t* from, int row, int, Bytes* to) {
        GroupCodes<bits>::read(from, row, to);
        const int raised = lift - GroupCodes<bits>::stored_lift;
        const Bytes lowered = spread(load_bytes(block + panel_rows * 2 + row) - raised);
        for (int g = 0; g < step_groups; g++) to[g] = to[g] - lowered;
    }
};

// q - zero_point may take 9 bits: the zero point meets the sum of the activations instead.
template <>
struct AsymmetricGroup<8> : GroupCodes<8> {
    static constexpr Sums sums = Sums::span_zero;
    static constexpr int lift = 128, code_bits = 8;
    static constexpr int header_bytes = panel_rows * 3;

    static void scales(const uint8_t* block, int row, int, Floats* scale, Floats* minimum) {
        *scale = load_halves(block + row * 2);
        *minimum = -to_floats(load_signed_bytes(block + panel_rows * 2 + row));
    }
    static void codes(const uint8_t*, const uint8_t* from, int row, int, Bytes* to) { read(from, row, to); }
};

// The formats of block.h's QK_GROUP_FORMATS, each with its codes.
#define QK_GROUP_CODES(X)          \
    X(w2, Group<2>)                \
    X(w3, Group<3>)                \
    X(w4, Group<4>)                \
    X(w8, Group<8>)                \
    X(w2_asym, AsymmetricGroup<2>) \
    X(w3_asym, AsymmetricGroup<3>) \
    X(w4_asym, AsymmetricGroup<4>) \
    X(w8_asym, AsymmetricGroup<8>)
