// TQ1_0: 256 weights of -1, 0 or 1, five in each byte, with one scale. Drawn in quant/formats/ternary.py.
//
// The 64 groups of a block are 13 vectors of a panel, five in each but the last: byte j of vector v is the fraction
// 0.q0 q1 q2 q3 q4 of base 3 whose digits are byte j of the groups 5 v to 5 v + 4.

#ifdef QK_LAYOUT
struct tq1_0 : BlockLayout {
    static constexpr int block_size = 256, block_bytes = 54, bits = 2;
    static constexpr int step_bytes = 13 * 64 / 8;
    static constexpr int most_direct_tokens = 8;
    static constexpr Sums sums = Sums::span;
    static constexpr Field fields[] = {{52, 2, 2}};

    // Digits of `count` bytes: all first ones, then all second ones.
    static uint8_t* digits(const uint8_t* from, int count, int num_digits, uint8_t* q) {
        for (int place = 0, power = 1; place < num_digits; place++, power *= 3)
            for (int j = 0; j < count; j++) *q++ = static_cast<uint8_t>((from[j] * power & 255) * 3 >> 8);
        return q;
    }

    static void pack_steps(const uint8_t* block, int row, uint8_t* to) {
        uint8_t q[5 * 13 * 4] = {};  // four more than there are weights
        digits(block + 48, 4, 4, digits(block + 32, 16, 5, digits(block, 32, 5, q)));
        for (int v = 0; v < 13; v++) {
            for (int j = 0; j < 4; j++) {
                int number = 0;
                for (int place = 0; place < 5; place++) number = number * 3 + q[4 * (5 * v + place) + j];
                to[64 * v + 4 * row + j] = static_cast<uint8_t>((number * 256 + 242) / 243);
            }
        }
    }
};
#endif

#ifdef QK_LINEAR
namespace {
struct TQ1_0 : OneScale<layout::tq1_0> {
    static constexpr int lift = 1;

    static void codes(const uint8_t* block, const uint8_t*, int row, int step, Bytes* to) {
        const uint8_t* vectors = block + header_bytes;
        int vector = step * step_groups / 5, place = step * step_groups % 5;
        Bytes rest = plane_vector(vectors, vector, row);
        for (int i = 0; i < place; i++) rest = rest + rest + rest;
        for (int g = 0; g < step_groups; g++) {
            to[g] = first_third(rest);
            if (++place == 5) {
                place = 0;
                if (++vector < 13) rest = plane_vector(vectors, vector, row);
            } else {
                rest = rest + rest + rest;
            }
        }
    }
};
}  // namespace
QK_PRODUCTS(tq1_0, TQ1_0)
#endif
