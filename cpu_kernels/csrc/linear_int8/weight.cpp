#include "linear_int8/weight.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "linear/crossover.h"
#include "thread_pool.h"

namespace qk::linear_int8 {

static constexpr float smallest_scale = 0x1p-126f;  // smallest normal float: zeros divide safely by it

// NaN stays NaN.
static float scale_from(float absmax) { return std::max(absmax / 127, smallest_scale); }

float Int8Input::scale_of(const float* x, float shared, const Kernels& kernels) const {
    if (inputs_ == Inputs::per_tensor) return scale_from(shared);
    const float absmax = kernels.absmax(x, row_size_);
    if (inputs_ == Inputs::per_token) return scale_from(absmax);
    return std::isnan(absmax) ? std::numeric_limits<float>::quiet_NaN() : scale_;
}

void Int8Input::prepare(const float* x, std::byte* out, float shared, Isa isa) const {
    const Kernels& kernels = kernels_of(isa);
    const float scale = scale_of(x, shared, kernels);
    const int64_t padded = padded_row(row_size_);
    auto* codes = reinterpret_cast<int8_t*>(out);
    const int32_t sum = kernels.codes(x, row_size_, scale, codes);
    std::fill(codes + row_size_, codes + padded, int8_t{0});
    *reinterpret_cast<TokenTail*>(out + padded) = {scale, -code_bias * sum};
}

float Int8Input::share_of(const float* x, Isa isa) const { return kernels_of(isa).absmax(x, row_size_); }

bool Int8Input::equals(const linear::InputFormat& other) const {
    const auto* same = dynamic_cast<const Int8Input*>(&other);
    return same && same->row_size_ == row_size_ && same->inputs_ == inputs_ &&
           (inputs_ != Inputs::fixed || same->scale_ == scale_);
}

// Nothing is unpacked: both paths are one, which bears the name that was asked for.
linear::Choice W8A8::choose(int64_t, std::optional<std::string_view> isa, linear::Path path) const {
    linear::require_stored_weights(path, format());
    if (path == linear::Path::automatic) path = linear::forced_path();
    return {qk::choose("linear_w8a8", table(), isa).isa, path == linear::Path::tile ? path : linear::Path::direct};
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
