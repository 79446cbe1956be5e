#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

#include "gptq/gptq.h"
#include "thread_pool.h"

namespace qk::gptq {

Feedback::Feedback(std::shared_ptr<const Factor> factor, const float* weight, int64_t num_rows,
                   std::vector<int64_t> order, const Impl<Kernels>& impl)
    : factor_(std::move(factor)),
      weight_(weight),
      num_rows_(num_rows),
      num_columns_(factor_->size()),
      num_panels_((num_rows + tile - 1) / tile),
      order_(std::move(order)),
      impl_(impl),
      state_(static_cast<size_t>(num_panels_ * num_columns_ * tile) * sizeof(float)) {}

float* Feedback::state(int64_t panel, int64_t column) {
    return reinterpret_cast<float*>(state_.data()) + (panel * num_columns_ + column) * tile;
}

const float* Feedback::weights(int64_t panel) const {
    return reinterpret_cast<const float*>(weight_panel_.data()) + panel * (opened_ - rounded_) * tile;
}

const float* Feedback::coefficient(int64_t row) const {
    return reinterpret_cast<const float*>(coefficients_.data()) + row * (opened_ - rounded_);
}

void Feedback::open(int64_t end) {
    if (end <= rounded_ || end > num_columns_ || (opened_ > rounded_ && opened_ != end))
        throw std::invalid_argument("end: got " + std::to_string(end) + ", expected above " + std::to_string(rounded_) +
                                    ", at most " + std::to_string(num_columns_) +
                                    ", and the same for expect and round");
    if (opened_ == end) return;
    const int64_t begin = rounded_, num_columns = end - begin;
    opened_ = end;
    coefficients_ = Buffer(static_cast<size_t>(end * num_columns) * sizeof(float));
    weight_panel_ = Buffer(static_cast<size_t>(num_panels_ * num_columns * tile) * sizeof(float));
    factor_->coefficients(begin, end, reinterpret_cast<float*>(coefficients_.data()));
    thread_pool()->run(num_panels_, [&](int64_t panel) {
        float* weight = const_cast<float*>(weights(panel));
        const int64_t rows = std::min<int64_t>(tile, num_rows_ - panel * tile);
        std::fill_n(weight, num_columns * tile, 0.0f);
        for (int64_t r = 0; r < rows; r++) {
            const float* row = weight_ + (panel * tile + r) * num_columns_;
            for (int64_t c = 0; c < num_columns; c++) weight[c * tile + r] = row[order_[begin + c]];
        }
        float* target = state(panel, begin);
        std::copy_n(weight, num_columns * tile, target);
        // A tile of errors at a time: it stays in the L1 for all columns.
        for (int64_t i = 0; i < begin; i += tile)
            impl_.kernels.subtract(state(panel, i), coefficient(i), num_columns, std::min<int64_t>(tile, begin - i),
                                   num_columns, target);
    });
}

void Feedback::expect(int64_t end, float* out) {
    open(end);
    const int64_t num_columns = end - rounded_;
    thread_pool()->run(num_panels_, [&](int64_t panel) {
        const float* weight = weights(panel);
        const int64_t rows = std::min<int64_t>(tile, num_rows_ - panel * tile);
        std::vector<float> moved(static_cast<size_t>(num_columns * tile));  // expected - weight
        float expected[tile];
        for (int64_t c = 0; c < num_columns; c++) {
            std::copy_n(state(panel, rounded_ + c), tile, expected);
            impl_.kernels.subtract(moved.data(), coefficient(rounded_) + c, num_columns, c, 1, expected);
            for (int64_t r = 0; r < tile; r++) moved[c * tile + r] = expected[r] - weight[c * tile + r];
            for (int64_t r = 0; r < rows; r++) out[(panel * tile + r) * num_columns + c] = expected[r];
        }
    });
}

Isa Feedback::round(int64_t end, const float* scale, const float* offset, int64_t num_scales, float qmin, float qmax,
                    int8_t* q) {
    open(end);
    const int64_t num_columns = end - rounded_, columns_per_scale = num_columns / num_scales;
    std::atomic<Isa> ran{impl_.isa};
    thread_pool()->run(num_panels_, [&](int64_t panel) {
        const float* weight = weights(panel);
        const int64_t first_row = panel * tile, rows = std::min<int64_t>(tile, num_rows_ - first_row);
        float scales[tile], offsets[tile], codes[tile];
        std::fill_n(scales, tile, 0.0f);
        std::fill_n(offsets, tile, 0.0f);
        for (int64_t c = 0; c < num_columns; c++) {
            for (int64_t r = 0; r < rows && c % columns_per_scale == 0; r++) {
                scales[r] = scale[(first_row + r) * num_scales + c / columns_per_scale];
                offsets[r] = offset[(first_row + r) * num_scales + c / columns_per_scale];
            }
            float* target = state(panel, rounded_ + c);
            impl_.kernels.subtract(state(panel, rounded_), coefficient(rounded_) + c, num_columns, c, 1, target);
            ran.store(impl_.kernels.round(target, weight + c * tile, {scales, offsets, qmin, qmax}, codes, target),
                      std::memory_order_relaxed);
            for (int64_t r = 0; r < rows; r++) q[(first_row + r) * num_columns + c] = static_cast<int8_t>(codes[r]);
        }
    });
    rounded_ = end;
    return ran;
}

}  // namespace qk::gptq
