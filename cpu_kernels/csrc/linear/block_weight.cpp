#include "linear/block_weight.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "linear/crossover.h"
#include "thread_pool.h"

namespace qk::linear {
namespace {

// Panels whose outputs wait while the next stretch of them all is multiplied: the activations of a stretch, 512 KiB
// for 512 tokens, come from the L2 for all but the first, and 32 KiB of outputs a panel stay there with them.
constexpr int64_t panels_a_group = 8;

// Tokens of which that is said.
constexpr int64_t tokens_at_once = 512;

// A stretch unpacked; the largest of every kind.
struct alignas(64) Scratch {
    uint8_t codes[stretch_steps * step_groups * group_bytes];
    float scale[stretch_steps * 2 * panel_rows];
    float minimum[stretch_steps * 2 * panel_rows];

    Stretch stretch(int num_steps, int span) { return {codes, scale, minimum, num_steps, span}; }
};

// Outputs [panel, token, 16] of a group of panels; kept, so that a step allocates nothing.
float* sums_of(int64_t count) {
    thread_local Buffer buffer;
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    if (buffer.size() < bytes) buffer = Buffer(bytes);
    return reinterpret_cast<float*>(buffer.data());
}

const BlockKernels& kernels_of(const CodeFormat& format, Isa isa) {
    for (const auto& impl : format.table)
        if (impl.isa == isa) return impl.kernels;
    throw std::logic_error(format.op + " has no " + name_of(isa));
}

}  // namespace

BlockWeight::BlockWeight(const CodeFormat& format, std::string name, int64_t num_rows, int64_t row_size,
                         PanelShape shape, Buffer panels, BlockInput input)
    : format_(format),
      name_(std::move(name)),
      num_rows_(num_rows),
      row_size_(row_size),
      shape_(shape),
      panel_bytes_(num_rows ? static_cast<int64_t>(panels.size()) / num_panels() : 0),
      panels_(std::move(panels)),
      input_(std::move(input)) {}

Choice BlockWeight::choose(int64_t num_tokens, std::optional<std::string_view> isa, Path path) const {
    const auto* impl = &qk::choose(format_.op, format_.table, isa);
    if (path == Path::automatic) path = forced_path();
    if (path == Path::automatic && isa && !impl->kernels.direct) path = Path::tile;
    if (path == Path::automatic)
        path = num_tokens <= most_direct_tokens(format_, impl->isa) ? Path::direct : Path::tile;
    if (path == Path::direct && !impl->kernels.direct) {
        const Isa asked = impl->isa;
        while (!impl->kernels.direct) impl++;  // the next best one; scalar, the last, has everything
        if (isa) throw_no_such_impl(format_.op + " on the direct path", asked, name_of(impl->isa));
    }
    return {impl->isa, path};
}

Isa BlockWeight::multiply(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                          const Choice& choice) const {
    const BlockKernels& kernels = kernels_of(format_, choice.isa);
    Isa ran = choice.isa;
    for (int64_t token = 0; token < x.num_tokens; token += tokens_at_once) {
        const int64_t tokens = std::min(tokens_at_once, x.num_tokens - token);
        const Input some{x.tokens + token * x.token_bytes, x.token_bytes, tokens};
        ran = choice.path == Path::direct
                  ? multiply_direct(begin, end, some, y + token * y_stride, y_stride, kernels)
                  : multiply_tiles(begin, end, some, y + token * y_stride, y_stride, kernels);
    }
    return ran;
}

Isa BlockWeight::multiply_direct(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                                 const BlockKernels& kernels) const {
    Isa ran{};
    for (int64_t i = begin; i < end; i++) {
        for (int64_t token = 0; token < x.num_tokens; token += direct_tokens) {
            const auto tokens = static_cast<int>(std::min<int64_t>(direct_tokens, x.num_tokens - token));
            alignas(64) float values[direct_tokens * panel_rows];
            ran = kernels.direct(panel(i), shape_, x.tokens + token * x.token_bytes, x.token_bytes, tokens, values);
            store(i, values, tokens, y + token * y_stride, y_stride);
        }
    }
    return ran;
}

Isa BlockWeight::multiply_tiles(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                                const BlockKernels& kernels) const {
    thread_local Scratch scratch;
    const int64_t panel_size = x.num_tokens * panel_rows;
    float* sums = sums_of(std::min(panels_a_group, end - begin) * panel_size);
    const int whole_steps = stretch_steps / shape_.block_steps * shape_.block_steps;
    Isa ran{};
    for (int64_t first = begin; first < end; first += panels_a_group) {
        const int64_t last = std::min(first + panels_a_group, end);
        std::fill_n(sums, (last - first) * panel_size, 0.0f);
        for (int64_t step = 0; step < shape_.num_steps; step += whole_steps) {
            const auto steps = static_cast<int>(std::min<int64_t>(whole_steps, shape_.num_steps - step));
            Stretch stretch = scratch.stretch(steps, shape_.block_steps);
            const std::byte* x_step = x.tokens + step * sizeof(ActivationBlock);
            for (int64_t i = first; i < last; i++) {
                fetch_after(stretch, i, step, first, last);
                kernels.unpack(panel(i), shape_, step, stretch);
                ran = kernels.tile(stretch, x_step, x.token_bytes, x.num_tokens, sums + (i - first) * panel_size);
            }
        }
        for (int64_t i = first; i < last; i++) store(i, sums + (i - first) * panel_size, x.num_tokens, y, y_stride);
    }
    return ran;
}

// What is unpacked after the steps from `step` on of panel i, of those in [first, last): the same of the next panel, or
// the next steps of the first one. After the last the panel that follows is a guess, and right as a rule.
void BlockWeight::fetch_after(Stretch& stretch, int64_t i, int64_t step, int64_t first, int64_t last) const {
    const auto offset_of = [&](int64_t steps) { return steps / shape_.block_steps * shape_.block_bytes; };
    const int64_t next_step = step + stretch.num_steps;
    const bool wraps = i + 1 == last, ends = wraps && next_step >= shape_.num_steps;
    const int64_t next_panel = !wraps ? i + 1 : ends ? last : first;
    stretch.next_bytes = 0;
    if (next_panel == num_panels()) return;
    stretch.next = panel(next_panel) + offset_of(!wraps ? step : ends ? 0 : next_step);
    stretch.next_bytes = static_cast<int>(panel_bytes_ * stretch.num_steps / shape_.num_steps);
}

// values [num_tokens, 16] of a panel to its rows of y
void BlockWeight::store(int64_t panel, const float* values, int64_t num_tokens, float* y, int64_t y_stride) const {
    const int64_t first_row = panel * panel_rows;
    const int64_t count = std::min<int64_t>(panel_rows, num_rows_ - first_row);
    for (int64_t token = 0; token < num_tokens; token++)
        std::memcpy(y + token * y_stride + first_row, values + token * panel_rows, count * sizeof(float));
}

void BlockWeight::rows(const int64_t* index, int64_t num_indices, float* out) const {
    thread_pool()->run(num_indices, [&](int64_t i) { unpack_row(index[i], out + i * row_size_); });
}

void BlockWeight::unpack_row(int64_t row, float* out) const {
    thread_local Scratch scratch;
    const Sums sums = format_.sums;
    const int lane = static_cast<int>(row % panel_rows);
    const BlockKernels& kernels = format_.table.back().kernels;
    const std::vector<int32_t>& order = input_.order();
    for (int64_t step = 0; step < shape_.num_steps; step += shape_.block_steps) {
        const auto steps = static_cast<int>(std::min<int64_t>(shape_.block_steps, shape_.num_steps - step));
        kernels.unpack(panel(row / panel_rows), shape_, step, scratch.stretch(steps, shape_.block_steps));
        const int64_t first = step * step_size, count = std::min<int64_t>(steps * step_size, row_size_ - first);
        for (int64_t k = 0; k < count; k++) {
            const int half = static_cast<int>(k / (step_size / 2));
            const int code = scratch.codes[k / 4 * group_bytes + lane * 4 + k % 4] - (is_biased(sums) ? 128 : 0);
            const int i_scale = is_span(sums) ? 0 : sums == Sums::half ? half : half / 2;
            float value = scratch.scale[i_scale * panel_rows + lane] * static_cast<float>(code);
            if (sums == Sums::step_minimum) value += scratch.minimum[half / 2 * panel_rows + lane];
            if (sums == Sums::step_half_minima) value += scratch.minimum[half * panel_rows + lane];
            if (sums == Sums::span_zero)
                value = scratch.scale[lane] * (static_cast<float>(code) + scratch.minimum[lane]);
            out[order.empty() ? first + k : order[first + k]] = value;
        }
    }
}

}  // namespace qk::linear
