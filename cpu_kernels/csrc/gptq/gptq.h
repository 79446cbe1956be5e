// GPTQ's costly parts: the factor of a Hessian, the feedback of rounding errors along it, and the search for a grid.
//
//     H = R R^T, R upper triangular            M[i][c] = R[i][c] / R[c][c]
//     target[c] = weight[c] - sum over i < c of (rounded[i] - weight[i]) * M[i][c]
//
// `rounded` is whatever grid value was chosen for column i. That is the paper's update: its upper Cholesky factor of
// the inverse of H is R^-1, and multiplying by it column after column solves with R. Neither R nor H is ever inverted
// here, which saves three quarters of the operations (K^3 / 3 instead of 4 K^3 / 3) and the rounding of an inverse.
//
// Everything is cut into tiles of fixed size, each computed by one thread, and every sum runs in a fixed order with
// fused multiply-adds: neither the number of threads nor the instruction set changes a bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "buffer.h"
#include "dispatch.h"

namespace qk::gptq {

// Rows of a weight that a task works on side by side, and edge of a tile of the factor: 4 registers of 512 bits,
// and 64 x 64 float32 are 16 KiB, half an L1.
inline constexpr int tile = 64;
inline constexpr int64_t tile_size = tile * tile;

// A grid for `tile` weights of one column: value = scale * q + offset, q in qmin..qmax.
struct ColumnGrid {
    const float* scale;
    const float* offset;
    float qmin, qmax;
};

struct Kernels {
    // out[c][r] -= sum over d of coefficients[d * stride + c] * lanes[d][r]; lanes [depth, tile], out [columns, tile]
    void (*subtract)(const float* lanes, const float* coefficients, int64_t stride, int64_t depth, int64_t columns,
                     float* out);
    // Nearest codes of target [tile], and error = value of the code - weight. A scale of 0 has the code nearest 0.
    // Returns its own name: the proof that it ran.
    Isa (*round)(const float* target, const float* weight, const ColumnGrid& grid, float* q, float* error);
    // error[r] = sum over c of cost[c] * (values[c][r] - its nearest value on the grid of r)^2; values [columns, tile],
    // the grid of r is scale[r] * n for whole n in lowest[r]..lowest[r] + steps, scale[r] above 0
    void (*grid_error)(const float* values, const float* cost, int64_t columns, const float* scale, const float* lowest,
                       float steps, float* error);
};

std::span<const Impl<Kernels>> table();

// L of the Hessian in reversed order, H[K-1-i][K-1-j] = (L L^T)[i][j], of which R is the reversal. Lower tiles only.
class Factor {
public:
    Factor(int64_t size, const Kernels& kernels);

    // hessian [K, K]; diagonal [K] replaces its diagonal; column c of the factor is column order[c] of the Hessian.
    // Returns false where a pivot is not above the rounding error of its sum: not positive definite.
    bool compute(const float* hessian, const float* diagonal, const int64_t* order);

    int64_t size() const { return size_; }
    // R[c][c]
    float diagonal(int64_t c) const;
    // coefficients [end, end - begin] = M[i][c], 0 where i >= c
    void coefficients(int64_t begin, int64_t end, float* out) const;

private:
    int64_t size_, num_tiles_;
    Kernels kernels_;
    Buffer buffer_;

    // Tile of rows i, columns j <= i, stored by columns: [j % tile][i % tile]
    float* at(int64_t i, int64_t j);
    const float* at(int64_t i, int64_t j) const { return const_cast<Factor*>(this)->at(i, j); }
    void gather(const float* hessian, const float* diagonal, const int64_t* order);
    bool factor_column(int64_t k);
};

// The rows of one weight on their way through the columns, in the order of the factor.
class Feedback {
public:
    // weight [N, K], kept by the caller; columns of the factor are order[c] of the weight
    Feedback(std::shared_ptr<const Factor> factor, const float* weight, int64_t num_rows, std::vector<int64_t> order,
             const Impl<Kernels>& impl);

    int64_t num_rows() const { return num_rows_; }
    int64_t num_columns() const { return num_columns_; }
    int64_t num_rounded() const { return rounded_; }

    // Columns [num_rounded, end) as they would be chosen if the grid were infinitely fine. out [N, end - num_rounded]
    void expect(int64_t end, float* out);

    // Rounds columns [num_rounded, end). scale, offset [N, num_scales]: each for (end - num_rounded) / num_scales
    // columns; q [N, end - num_rounded]. Returns the kernel that ran.
    Isa round(int64_t end, const float* scale, const float* offset, int64_t num_scales, float qmin, float qmax,
              int8_t* q);

private:
    std::shared_ptr<const Factor> factor_;
    const float* weight_;
    int64_t num_rows_, num_columns_, num_panels_;
    std::vector<int64_t> order_;
    Impl<Kernels> impl_;
    int64_t rounded_ = 0, opened_ = 0;  // columns that are done, and those whose earlier feedback is summed up
    Buffer state_;         // [panels, K, tile]: errors of the columns done, targets of those opened
    Buffer weight_panel_;  // [panels, opened - rounded, tile]: their weights
    Buffer coefficients_;  // [opened, opened - rounded]

    void open(int64_t end);
    float* state(int64_t panel, int64_t column);
    const float* weights(int64_t panel) const;
    const float* coefficient(int64_t row) const;
};

// The grid of least error among num_trials for each row, the first if several have it.
// values [N, columns], cost [columns]; scale, lowest [num_trials, N] as in Kernels::grid_error; best [N]
void search(const float* values, int64_t num_rows, int64_t num_columns, const float* cost, const float* scale,
            const float* lowest, int64_t num_trials, float steps, int64_t* best, const Kernels& kernels);

#define QK_DECLARE(isa)                                                                                               \
    namespace isa {                                                                                                   \
    void subtract(const float* lanes, const float* coefficients, int64_t stride, int64_t depth, int64_t columns,      \
                  float* out);                                                                                        \
    Isa round(const float* target, const float* weight, const ColumnGrid& grid, float* q, float* error);              \
    void grid_error(const float* values, const float* cost, int64_t columns, const float* scale, const float* lowest, \
                    float steps, float* error);                                                                       \
    }
QK_DECLARE(scalar)
QK_DECLARE(avx2)
QK_DECLARE(avx512)
#undef QK_DECLARE

}  // namespace qk::gptq
