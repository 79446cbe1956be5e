// The part that all instruction sets share, over their `Dot`. Include it inside a target region.
#define QK_LINEAR_FLOAT_KERNELS

template <class Dot>
struct Stored {
    const Target& target;

    [[gnu::always_inline]] auto start(int64_t) const { return Dot::zero(); }
    [[gnu::always_inline]] void store(int64_t token, int64_t row, int64_t num_rows,
                                      const typename Dot::Sum& sum) const {
        Dot::store(sum, target.y + token * target.y_stride + row, num_rows, target.add);
    }
};
