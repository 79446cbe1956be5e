#include "group_quant/group_quant.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "half.h"
#include "group_quant/words.h"
#include "thread_pool.h"

namespace qk::group_quant {

#define QK_KERNELS(isa) \
    {isa::fit, isa::round, isa::restore, isa::restore_each, isa::absmax, isa::to_halves, isa::round_product}
static constexpr Impl<Kernels> impls[] = {QK_IMPLS(QK_KERNELS)};
#undef QK_KERNELS

std::span<const Impl<Kernels>> table() { return impls; }

namespace {

// Work that takes longer than waking a thread, about 2 us: some thousand weights.
constexpr int64_t weights_per_task = 1 << 14;

// task(row) for every row, several of them at a time.
template <class Task>
void for_rows(int64_t num_rows, int64_t row_size, const Task& task) {
    const int64_t step = std::max<int64_t>(1, weights_per_task / std::max<int64_t>(1, row_size));
    thread_pool()->run((num_rows + step - 1) / step, [&](int64_t i) {
        for (int64_t row = i * step; row < std::min(num_rows, (i + 1) * step); row++) task(row);
    });
}

void throw_unless(const std::atomic<bool>& finite) {
    if (!finite) throw std::invalid_argument("weight: got NaN or infinity, expected finite weights");
}

// The codes of a row; kept, so that a row allocates nothing.
int8_t* codes_of(int64_t row_size) {
    thread_local std::vector<int8_t> codes;
    if (codes.size() < static_cast<size_t>(row_size)) codes.resize(static_cast<size_t>(row_size));
    return codes.data();
}

// run(bits) with the number as a constant.
template <class Run>
void with_bits(int bits, const Run& run) {
    switch (bits) {
        case 2: return run(std::integral_constant<int, 2>{});
        case 3: return run(std::integral_constant<int, 3>{});
        case 4: return run(std::integral_constant<int, 4>{});
        default: return run(std::integral_constant<int, 8>{});
    }
}

}  // namespace

Isa quantize_groups(const Groups& groups, const float* weight, uint8_t* packed, uint16_t* scale, int8_t* zero_point,
                    const Impl<Kernels>& impl) {
    const Kernels& kernels = impl.kernels;
    const int qmin = -(1 << (groups.bits - 1)), qmax = -qmin - 1;
    const int64_t size = groups.group_size, num_groups = groups.num_groups();
    std::atomic<bool> finite{true};
    std::atomic<Isa> ran{impl.isa};
    for_rows(groups.num_rows, groups.row_size, [&](int64_t row) {
        const float* x = weight + row * groups.row_size;
        if (!std::isfinite(kernels.absmax(x, groups.row_size))) return finite.store(false, std::memory_order_relaxed);
        int8_t* q = codes_of(groups.row_size);
        Isa who{};
        for (int64_t g = 0; g < num_groups; g++) {
            const Grid grid = kernels.fit(x + g * size, size, qmin, qmax, groups.symmetric);
            who = kernels.round(x + g * size, size, grid, qmin, qmax, q + g * size);
            scale[row * num_groups + g] = float_to_half(grid.scale);
            if (zero_point) zero_point[row * num_groups + g] = static_cast<int8_t>(grid.zero_point);
        }
        ran.store(who, std::memory_order_relaxed);
        with_bits(groups.bits,
                  [&](auto bits) { pack_row<bits>(q, groups.row_size, packed + row * groups.packed_bytes()); });
    });
    throw_unless(finite);
    return ran;
}

Isa dequantize_groups(const Groups& groups, const uint8_t* packed, const uint16_t* scale, const int8_t* zero_point,
                      const int32_t* group_of, float* weight, const Impl<Kernels>& impl) {
    const Kernels& kernels = impl.kernels;
    const int64_t size = groups.group_size, num_groups = groups.num_groups();
    std::atomic<Isa> ran{impl.isa};
    for_rows(groups.num_rows, groups.row_size, [&](int64_t row) {
        int8_t* q = codes_of(groups.row_size);
        with_bits(groups.bits,
                  [&](auto bits) { unpack_row<bits>(packed + row * groups.packed_bytes(), groups.row_size, q); });
        const auto grid_of = [&](int64_t g) {
            return Grid{half_to_float(scale[row * num_groups + g]), zero_point ? zero_point[row * num_groups + g] : 0};
        };
        float* out = weight + row * groups.row_size;
        Isa who{};
        if (group_of) {
            thread_local std::vector<float> grids;  // kept: a row allocates nothing
            grids.resize(static_cast<size_t>(2 * groups.row_size));
            float *scales = grids.data(), *zero_points = scales + groups.row_size;
            for (int64_t k = 0; k < groups.row_size; k++) {
                const Grid grid = grid_of(group_of[k]);
                scales[k] = grid.scale;
                zero_points[k] = static_cast<float>(grid.zero_point);
            }
            who = kernels.restore_each(q, groups.row_size, scales, zero_points, out);
        } else {
            for (int64_t g = 0; g < num_groups; g++)
                who = kernels.restore(q + g * size, size, grid_of(g), out + g * size);
        }
        ran.store(who, std::memory_order_relaxed);
    });
    return ran;
}

Isa quantize_rows(const float* weight, int64_t num_rows, int64_t row_size, bool per_tensor, int8_t* q, float* scale,
                  const Impl<Kernels>& impl) {
    const Kernels& kernels = impl.kernels;
    std::atomic<bool> finite{true};
    std::atomic<Isa> ran{impl.isa};
    for_rows(num_rows, row_size, [&](int64_t row) {
        scale[row] = kernels.absmax(weight + row * row_size, row_size);
        if (!std::isfinite(scale[row])) finite.store(false, std::memory_order_relaxed);
    });
    throw_unless(finite);
    if (per_tensor && num_rows) std::fill_n(scale, num_rows, *std::max_element(scale, scale + num_rows));
    constexpr float smallest_scale = 0x1p-126f;  // smallest normal float: zeros divide safely by it
    for_rows(num_rows, row_size, [&](int64_t row) {
        scale[row] = std::max(scale[row] / 127, smallest_scale);
        ran.store(kernels.round(weight + row * row_size, row_size, {scale[row], 0}, -128, 127, q + row * row_size),
                  std::memory_order_relaxed);
    });
    return ran;
}

Isa quantize_llm_int8(const float* weight, int64_t num_rows, int64_t row_size, int8_t* q, float* absmax,
                      const Impl<Kernels>& impl) {
    const Kernels& kernels = impl.kernels;
    std::atomic<bool> fits{true};
    std::atomic<Isa> ran{impl.isa};
    for_rows(num_rows, row_size, [&](int64_t row) {
        const float* x = weight + row * row_size;
        if (!(kernels.absmax(x, row_size) <= 65504.0f)) return fits.store(false, std::memory_order_relaxed);
        thread_local std::vector<float> halves;  // kept: a row allocates nothing
        if (halves.size() < static_cast<size_t>(row_size)) halves.resize(static_cast<size_t>(row_size));
        kernels.to_halves(x, row_size, halves.data());
        absmax[row] = kernels.absmax(halves.data(), row_size);
        const float factor = absmax[row] == 0 ? 0 : 1 / absmax[row] * 127;
        ran.store(kernels.round_product(halves.data(), row_size, factor, q + row * row_size),
                  std::memory_order_relaxed);
    });
    if (!fits) throw std::invalid_argument("weight: got a magnitude above 65504, NaN or infinity");
    return ran;
}

Isa dequantize_rows(const int8_t* q, const float* scale, int64_t num_rows, int64_t row_size, float* weight,
                    const Impl<Kernels>& impl) {
    const Kernels& kernels = impl.kernels;
    std::atomic<Isa> ran{impl.isa};
    for_rows(num_rows, row_size, [&](int64_t row) {
        ran.store(kernels.restore(q + row * row_size, row_size, {scale[row], 0}, weight + row * row_size),
                  std::memory_order_relaxed);
    });
    return ran;
}

}  // namespace qk::group_quant
