#include "linear_int8/weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "linear/crossover.h"
#include "thread_pool.h"

namespace qk::linear_int8 {

void CodePlaces::put(const int8_t* codes, const TokenTail& tail, const linear::Place& to) const {
    const auto* row = reinterpret_cast<const std::byte*>(codes);
    if (tiles_) {
        rows_.scatter(row, to.tokens, to.num_tokens, to.token);
        std::memcpy(rows_.tail(to.tokens, to.num_tokens, to.token), &tail, sizeof tail);
    } else {
        std::byte* const out = to.tokens + static_cast<size_t>(to.token) * row_bytes();
        std::memcpy(out, row, static_cast<size_t>(padded_));
        std::memcpy(out + padded_, &tail, sizeof tail);
    }
}

void CodePlaces::copy(const linear::Input& from, int64_t i, const linear::Place& to) const {
    if (tiles_)
        rows_.copy(from, i, to.tokens, to.num_tokens, to.token);
    else
        std::memcpy(to.tokens + static_cast<size_t>(to.token) * row_bytes(),
                    from.tokens + static_cast<size_t>(i) * row_bytes(), row_bytes());
}

static constexpr float smallest_scale = 0x1p-126f;  // smallest normal float: zeros divide safely by it

// NaN stays NaN.
static float scale_from(float absmax) { return std::max(absmax / 127, smallest_scale); }

float Int8Input::scale_of(const float* x, float shared, const Kernels& kernels) const {
    if (inputs_ == Inputs::per_tensor) return scale_from(shared);
    const float absmax = kernels.absmax(x, row_size_);
    if (inputs_ == Inputs::per_token) return scale_from(absmax);
    return std::isnan(absmax) ? std::numeric_limits<float>::quiet_NaN() : scale_;
}

void Int8Input::prepare(const float* x, const linear::Place& place, float shared, Isa isa) const {
    const Kernels& kernels = kernels_of(isa);
    const float scale = scale_of(x, shared, kernels);
    thread_local std::vector<int8_t> codes;
    codes.resize(static_cast<size_t>(padded_row(row_size_)));
    const int32_t sum = kernels.codes(x, row_size_, scale, codes.data());
    std::fill(codes.begin() + row_size_, codes.end(), int8_t{0});
    places_.put(codes.data(), {scale, -code_bias * sum}, place);
}

float Int8Input::share_of(const float* x, Isa isa) const { return kernels_of(isa).absmax(x, row_size_); }

bool Int8Input::equals(const linear::InputFormat& other) const {
    const auto* same = dynamic_cast<const Int8Input*>(&other);
    return same && same->row_size_ == row_size_ && same->inputs_ == inputs_ && same->places_ == places_ &&
           (inputs_ != Inputs::fixed || same->scale_ == scale_);
}

// Nothing is unpacked: both paths are one, which bears the name that was asked for.
linear::Choice W8A8::choose(int64_t num_tokens, std::optional<std::string_view> isa, linear::Path path) const {
    path = linear::stored_path(path, format());
    const Isa best = linear::choose_tiles("linear_w8a8", table(), num_tokens, linear::least_int8_tile_tokens, isa).isa;
    return {best, path == linear::Path::tile ? path : linear::Path::direct};
}

Isa W8A8::multiply(int64_t begin, int64_t end, const linear::Input& x, float* y, int64_t y_stride,
                   const linear::Choice& choice) const {
    const Target target{packed_.scales(), padded_row(row_size()), y, y_stride, Scaling::w8a8};
    return kernels_of(choice.isa).multiply(packed_.panels(), begin, end, x, target);
}

void W8A8::rows(const int64_t* index, int64_t num_indices, float* out) const {
    thread_pool()->run(num_indices, [&](int64_t i) {
        const float scale = packed_.scales()[index[i]];
        for (int64_t k = 0; k < row_size(); k++)
            out[i * row_size() + k] = scale * static_cast<float>(packed_.code(index[i], k));
    });
}

}  // namespace qk::linear_int8
