#include <algorithm>
#include <cmath>

#include "gptq/gptq.h"
#include "thread_pool.h"

namespace qk::gptq {

// A pivot that is this small a part of its first value is the rounding of its sum, not a number: float32 keeps
// 2**-24 of each term, and the terms add up like a random walk.
static constexpr float smallest_pivot = 0x1p-22f;

Factor::Factor(int64_t size, const Kernels& kernels)
    : size_(size),
      num_tiles_((size + tile - 1) / tile),
      kernels_(kernels),
      buffer_(static_cast<size_t>(num_tiles_ * (num_tiles_ + 1) / 2 * tile_size) * sizeof(float)) {}

float* Factor::at(int64_t i, int64_t j) {
    return reinterpret_cast<float*>(buffer_.data()) + (i * (i + 1) / 2 + j) * tile_size;
}

float Factor::diagonal(int64_t c) const {
    const int64_t i = size_ - 1 - c;
    return at(i / tile, i / tile)[i % tile * (tile + 1)];
}

// Lines past the end of the matrix are those of an identity.
void Factor::gather(const float* hessian, const float* diagonal, const int64_t* order) {
    thread_pool()->run(num_tiles_, [&](int64_t j) {
        for (int64_t column = j * tile; column < (j + 1) * tile; column++) {
            const bool inside = column < size_;
            const int64_t from = inside ? order[size_ - 1 - column] : 0;
            for (int64_t i = j; i < num_tiles_; i++) {
                float* out = at(i, j) + column % tile * tile;
                const int64_t num_rows = inside ? std::clamp<int64_t>(size_ - i * tile, 0, tile) : 0;
                for (int64_t r = 0; r < num_rows; r++) out[r] = hessian[from * size_ + order[size_ - 1 - i * tile - r]];
                std::fill(out + num_rows, out + tile, 0.0f);
            }
            at(j, j)[column % tile * (tile + 1)] = inside ? diagonal[from] : 1.0f;
        }
    });
}

// Column after column of the tile at (k, k), whose earlier tiles are already subtracted.
bool Factor::factor_column(int64_t k) {
    float* t = at(k, k);
    for (int64_t c = 0; c < tile; c++) {
        kernels_.subtract(t, t + c, tile, c, 1, t + c * tile);
        const float pivot = t[c * (tile + 1)];
        if (!(pivot > 0.0f)) return false;
        const float root = std::sqrt(pivot);
        for (int64_t r = c; r < tile; r++) t[c * tile + r] /= root;
    }
    return true;
}

bool Factor::compute(const float* hessian, const float* diagonal, const int64_t* order) {
    const auto pool = thread_pool();
    gather(hessian, diagonal, order);
    for (int64_t k = 0; k < num_tiles_; k++) {
        pool->run(num_tiles_ - k, [&](int64_t task) {
            for (int64_t j = 0; j < k; j++)
                kernels_.subtract(at(k + task, j), at(k, j), tile, tile, tile, at(k + task, k));
        });
        if (!factor_column(k)) return false;
        pool->run(num_tiles_ - k - 1, [&](int64_t task) {
            const float* t = at(k, k);
            float* below = at(k + 1 + task, k);
            for (int64_t c = 0; c < tile; c++) {
                kernels_.subtract(below, t + c, tile, c, 1, below + c * tile);
                for (int64_t r = 0; r < tile; r++) below[c * tile + r] /= t[c * (tile + 1)];
            }
        });
    }
    for (int64_t c = 0; c < size_; c++) {
        const float root = this->diagonal(c);
        if (!(root * root > smallest_pivot * diagonal[order[c]])) return false;
    }
    return true;
}

void Factor::coefficients(int64_t begin, int64_t end, float* out) const {
    const int64_t num_columns = end - begin;
    thread_pool()->run((end + tile - 1) / tile, [&](int64_t task) {
        const int64_t first = task * tile, last = std::min(end, first + tile);
        for (int64_t c = begin; c < end; c++) {
            const int64_t column = size_ - 1 - c;
            const float root = diagonal(c);
            for (int64_t i = first; i < last; i++) {
                const int64_t row = size_ - 1 - i;
                const float* stored = row > column ? at(row / tile, column / tile) : nullptr;
                out[i * num_columns + c - begin] = stored ? stored[column % tile * tile + row % tile] / root : 0.0f;
            }
        }
    });
}

}  // namespace qk::gptq
