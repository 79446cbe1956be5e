// Weights in bfloat16, half or single precision, summed in float32.
// The arithmetic is defined by linear_float_ref in cpu_kernels/linear_float.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "buffer.h"
#include "dispatch.h"
#include "linear/dense.h"

namespace qk::linear_float {

enum class Kind : uint8_t { bf16, f16, f32 };

struct Op {
    const char* name;
    Kind kind;
};
inline constexpr Op ops[] = {{"linear_bf16", Kind::bf16}, {"linear_f16", Kind::f16}, {"linear_f32", Kind::f32}};

constexpr int64_t bytes_of(Kind kind) { return kind == Kind::f32 ? 4 : 2; }

// 32 k of bfloat16: the 16 pairs that one AMX tile takes. bf16 rows and tokens are padded to it with zeros.
inline constexpr int64_t bf16_row_multiple = 32;
constexpr int64_t padded_row(Kind kind, int64_t row_size) {
    return kind == Kind::bf16 ? linear::round_up(row_size, bf16_row_multiple) : row_size;
}

// Panels of 16 rows, padded with zeros:
//
//     bf16    group  | row 0: k k+1 | row 1: k k+1 | ... | row 15: k k+1 |      64 bytes, a pair of k
//     f16     group  | row 0: k | row 1: k | ... | row 15: k |                  32 bytes
//     f32     group  | row 0: k | row 1: k | ... | row 15: k |                  64 bytes
class Packed {
public:
    // weight [N, K], as the format stores it
    Packed(Kind kind, const std::byte* weight, int64_t num_rows, int64_t row_size);
    Packed(Kind kind, int64_t num_rows, int64_t row_size, Buffer packed)
        : kind_(kind), num_rows_(num_rows), row_size_(row_size), buffer_(std::move(packed)) {}
    static size_t bytes(Kind kind, int64_t num_rows, int64_t row_size);

    Kind kind() const { return kind_; }
    int64_t num_rows() const { return num_rows_; }
    int64_t row_size() const { return row_size_; }
    std::span<const uint8_t> bytes() const { return buffer_.bytes(); }
    linear::Panels panels() const;
    float value(int64_t row, int64_t k) const;

private:
    Kind kind_;
    int64_t num_rows_, row_size_;
    Buffer buffer_;
};

struct Target {
    float* y;
    int64_t y_stride;
    bool add;  // to the values in y
};

// The rows of panels [begin, end) for all tokens. Returns its own name: the proof that it ran.
using Multiply = Isa (*)(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);

struct Kernels { Multiply multiply; };

// f16 under avx512_bf16 and amx rounds the weights of a panel to bfloat16 and multiplies those with activations in
// bfloat16: twice the products a second, or more. All others multiply the weights as stored.
std::span<const Impl<Kernels>> table(Kind kind);

// Nearest even; NaN stays NaN. The rounding of activations, the same under every instruction set.
using RoundToBf16 = void (*)(const float* x, int64_t size, uint16_t* out);
RoundToBf16 round_to_bf16(Isa isa);

#define QK_DECLARE(isa)                                                                                        \
    namespace isa {                                                                                            \
    void round_to_bf16(const float* x, int64_t size, uint16_t* out);                                           \
    Isa multiply_bf16(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&); \
    Isa multiply_f16(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);  \
    Isa multiply_f32(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);  \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE
namespace amx {
Isa multiply_bf16(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);
Isa multiply_f16(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);
}  // namespace amx
namespace avx512_bf16 {
Isa multiply_bf16(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);
Isa multiply_f16(const linear::Panels&, int64_t begin, int64_t end, const linear::Input&, const Target&);
}  // namespace avx512_bf16

}  // namespace qk::linear_float
