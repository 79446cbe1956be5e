#include "linear/block_weight.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "linear/crossover.h"
#include "thread_pool.h"

namespace qk::linear {
namespace {

// Tokens multiplied before the weights are unpacked once more, and panels whose outputs wait while the next stretch of
// them all is multiplied. The activations of a stretch, 256 KiB, come from the L2 for all panels but the first two, and
// 16 KiB of outputs per panel stay there with them; unpacking costs 1 % of the products.
constexpr int64_t tokens_at_once = 256;
constexpr int64_t panels_a_group = 8;

// From this number of tokens on K-quants take Path::int8x256. Below 32 rounding a stretch once more costs more than
// it saves; one thread of an AVX-512 VNNI machine, K = 2048, N = 1536: 0.90 to 0.94 of the tile's speed at 16
// tokens, 1.03 to 1.09 at 32, 1.11 to 1.14 at 64, 1.17 to 1.27 at 512.
constexpr int64_t least_rerounded_tokens = 64;

// Codes of at most this number of bits are rounded unless that is asked for: the new step, 2 * 2.9 / 254 of the
// deviation of normal weights (2.9 deviations are the absmax of 256), adds 0.5 % to the root mean square error of
// Q4_K, 2 % to that of Q5_K, and 9 % to that of Q6_K.
constexpr int most_rerounded_bits = 5;

// AVX2 multiplies the narrow codes of a K-quant in 20 to 25 operations, and rounded ones in 33: see tile/pairs.inl.
constexpr bool gains_by_rounding(Isa isa) { return isa != Isa::avx2; }

bool may_reround(int bits, bool is_exact, Isa isa) {
    return asked_rounding().value_or(!is_exact && bits <= most_rerounded_bits && gains_by_rounding(isa));
}

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

bool has_amx() { return (detect() & bit(Isa::amx)) != 0; }

template <class Kernels>
const Kernels& kernels_of(std::span<const Impl<Kernels>> table, Isa isa) {
    for (const auto& impl : table)
        if (impl.isa == isa) return impl.kernels;
    throw std::logic_error(std::string("a table of weights has no ") + name_of(isa));
}

}  // namespace

BlockWeight::BlockWeight(const CodeFormat& format, std::string name, int64_t num_rows, int64_t row_size,
                         const PanelLayout& layout, Buffer bytes, BlockInput input)
    : format_(format),
      rerounding_(rerounding_of(format.name)),
      switch_points_(switch_points(format.op)),
      name_(std::move(name)),
      num_rows_(num_rows),
      row_size_(row_size),
      layout_(layout),
      bytes_(std::move(bytes)),
      input_(std::move(input)),
      tile_input_(row_size, input_.order()) {}

Choice BlockWeight::choose(int64_t num_tokens, std::optional<std::string_view> isa, Path path) const {
    if (!rerounding_) require_no_int8(path, name_);
    const auto* impl = &qk::choose(format_.op, format_.table, isa);
    if (path == Path::automatic) path = forced_path();
    const auto switches = [&] {
        const int64_t most_direct = most_direct_tokens(format_.most_direct_tokens, impl->isa);
        return switch_points_.of(impl->isa, {most_direct, least_rerounded_tokens, least_bf16_tokens});
    };
    const bool has_tiles = impl->isa == Isa::amx;
    if (has_tiles && path == Path::automatic && (isa || (may_use_bf16() && num_tokens >= switches().least_bf16)))
        path = Path::bf16;
    if (path == Path::bf16) {
        if (!has_tiles) throw_no_such_impl(format_.op + " on the bf16 path", impl->isa, has_amx() ? "amx" : "none");
        return {impl->isa, path};
    }
    if (has_tiles) {
        if (isa) throw_no_such_impl(format_.op + " on the " + name_of(path) + " path", impl->isa, name_of(impl[1].isa));
        impl++;
    }
    if (path == Path::automatic && rerounding_ && num_tokens >= switches().least_rerounded &&
        may_reround(rerounding_->bits, is_exact(), impl->isa))
        path = Path::int8x256;
    if (path == Path::automatic) path = num_tokens <= switches().most_direct ? Path::direct : Path::tile;
    return {impl->isa, path};
}

// Whether many tokens take the bf16 path if there is one.
bool BlockWeight::may_use_bf16() const { return !is_exact() && !(rerounding_ && asked_rounding()); }

Isa BlockWeight::multiply(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                          const Choice& choice) const {
#if QK_X86_KERNELS
    if (choice.path == Path::bf16) return amx::multiply_bf16(packed_panels(choice.isa), begin, end, x, y, y_stride);
#endif
    Isa ran = choice.isa;
    for (int64_t token = 0; token < x.num_tokens; token += tokens_at_once) {
        const int64_t tokens = std::min(tokens_at_once, x.num_tokens - token);
        const Input some{x.tokens + token * x.token_bytes, x.token_bytes, tokens};
        ran = choice.path == Path::direct ? multiply_direct(begin, end, some, y + token * y_stride, y_stride,
                                                            kernels_of(format_.table, choice.isa))
                                          : multiply_tiles(begin, end, some, y + token * y_stride, y_stride, choice);
    }
    return ran;
}

Isa BlockWeight::multiply_and_add(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                                  const Addends& addends, const Choice& choice) const {
#if QK_X86_KERNELS
    if (choice.path == Path::bf16)
        return amx::multiply_and_add_bf16(packed_panels(choice.isa), begin, end, x, y, y_stride, addends);
#endif
    return Weight::multiply_and_add(begin, end, x, y, y_stride, addends, choice);
}

PackedPanels BlockWeight::packed_panels(Isa isa) const {
    return {bytes_.data(), layout_, *kernels_of(format_.table, isa).tiles, format_.sums, num_rows_};
}

// The last rows of a tile that is not full have no panel.
bool BlockWeight::gates(const Weight& up, const Choice& choice, const InputFormat& to) const {
    const auto* other = dynamic_cast<const BlockWeight*>(&up);
    return choice.path == Path::bf16 && other && &other->format_ == &format_ && other->num_rows_ == num_rows_ &&
           other->row_size_ == row_size_ && other->layout_.block() == layout_.block() &&
           other->tile_input_.equals(tile_input_) && to.plain_tiles() && num_rows_ % 32 == 0;
}

Isa BlockWeight::multiply_gated(const Weight& up, int64_t begin, int64_t end, const Input& x, const InputFormat& format,
                                const Place& to, const Choice& choice) const {
#if QK_X86_KERNELS
    const auto& other = static_cast<const BlockWeight&>(up);
    return amx::multiply_gated(packed_panels(choice.isa), other.packed_panels(choice.isa), begin, end, x, to,
                               *format.plain_tiles());
#else
    return Weight::multiply_gated(up, begin, end, x, format, to, choice);
#endif
}

Isa BlockWeight::multiply_direct(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                                 const BlockKernels& kernels) const {
    Isa ran{};
    const int64_t num_parts = (x.num_tokens + direct_tokens - 1) / direct_tokens;  // of nearly equal size
    const int64_t panel_size = x.num_tokens * panel_rows;
    float* sums = sums_of(panels_together * panel_size);
    for (int64_t first = begin, last; first < end; first = last) {
        last = std::min(first / panels_together * panels_together + panels_together, end);
        std::fill_n(sums, (last - first) * panel_size, 0.0f);
        for (int64_t step = 0; step < layout_.num_steps(); step += layout_.stretch_at(step)) {
            for (int64_t part = 0; part < num_parts; part++) {
                const int64_t token = x.num_tokens * part / num_parts;
                const auto tokens = static_cast<int>(x.num_tokens * (part + 1) / num_parts - token);
                const std::byte* x_step = x.tokens + token * x.token_bytes + step * sizeof(ActivationBlock);
                for (int64_t i = first; i < last; i++)
                    ran = kernels.direct(at(i, step), layout_.block(), layout_.stretch_at(step), x_step, x.token_bytes,
                                         tokens, sums + (i - first) * panel_size + token * panel_rows);
            }
        }
        store_all(first, last, sums, x.num_tokens, y, y_stride);
    }
    return ran;
}

Isa BlockWeight::multiply_tiles(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                                const Choice& choice) const {
    const BlockKernels& kernels = kernels_of(format_.table, choice.isa);
    const ReroundKernels* rounded =
        choice.path == Path::int8x256 ? &kernels_of(rerounding_->table, choice.isa) : nullptr;
    const auto multiply_tile = rounded ? rounded->tile : kernels.tile;
    thread_local Scratch scratch[tile_panels];
    const int64_t panel_size = x.num_tokens * panel_rows;
    float* sums = sums_of(std::min(panels_a_group, end - begin) * panel_size);
    Isa ran{};
    for (int64_t first = begin; first < end; first += panels_a_group) {
        const int64_t last = std::min(first + panels_a_group, end);
        std::fill_n(sums, (last - first) * panel_size, 0.0f);
        for (int64_t step = 0; step < layout_.num_steps(); step += layout_.stretch_at(step)) {
            const std::byte* x_step = x.tokens + step * sizeof(ActivationBlock);
            for (int64_t i = first; i < last; i += tile_panels) {
                const int64_t panels = std::min<int64_t>(tile_panels, last - i);
                Stretch stretches[tile_panels];
                for (int64_t p = 0; p < panels; p++) {
                    stretches[p] = scratch[p].stretch(layout_.stretch_at(step), layout_.block().steps);
                    kernels.unpack(at(i + p, step), layout_.block(), stretches[p]);
                    if (rounded) rounded->reround(stretches[p], rerounding_->bits);
                    fetch_after(stretches[p], i + p, step, first, last);
                }
                const bool ends = step + stretches->num_steps == layout_.num_steps();
                const bool fits = (i + panels) * panel_rows <= num_rows_;
                float* own_sums = sums + (i - first) * panel_size;
                ran = multiply_tile({stretches, static_cast<size_t>(panels)}, x_step, x.token_bytes, x.num_tokens,
                                    {own_sums, ends && fits ? y + i * panel_rows : nullptr, y_stride});
                if (ends && !fits) store_all(i, i + panels, own_sums, x.num_tokens, y, y_stride);
            }
        }
    }
    return ran;
}

// Bytes that are unpacked next into the place of panel i's steps from `step` on, of the panels [first, last): the same
// steps of the panel that a tile takes there next; after the last one, the next steps of the first; after those, the
// panel that follows, which is a guess, and right as a rule.
void BlockWeight::fetch_after(Stretch& stretch, int64_t i, int64_t step, int64_t first, int64_t last) const {
    const int64_t place = (i - first) % tile_panels, next_step = step + stretch.num_steps;
    const bool wraps = i + tile_panels >= last, ends = wraps && next_step >= layout_.num_steps();
    const int64_t next_panel = !wraps ? i + tile_panels : ends ? last + place : first + place;
    if (next_panel >= num_panels()) return;
    const int64_t from_step = !wraps ? step : ends ? 0 : next_step;
    stretch.next = at(next_panel, from_step);
    stretch.next_bytes = layout_.stretch_bytes(from_step);
}

// sums [last - first, num_tokens, 16] of panels to y
void BlockWeight::store_all(int64_t first, int64_t last, const float* sums, int64_t num_tokens, float* y,
                            int64_t y_stride) const {
    for (int64_t token = 0; token < num_tokens; token++)
        for (int64_t i = first; i < last; i++)
            store(i, sums + ((i - first) * num_tokens + token) * panel_rows, y + token * y_stride);
}

// A token's values [16] of a panel to its y
void BlockWeight::store(int64_t panel, const float* values, float* y) const {
    const int64_t first_row = panel * panel_rows, count = num_rows_ - first_row;
    if (count >= panel_rows)
        std::memcpy(y + first_row, values, panel_rows * sizeof(float));
    else
        std::memcpy(y + first_row, values, count * sizeof(float));
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
    const int block_steps = layout_.block().steps;
    for (int64_t step = 0; step < layout_.num_steps(); step += block_steps) {
        const auto steps = static_cast<int>(std::min<int64_t>(block_steps, layout_.num_steps() - step));
        kernels.unpack(at(row / panel_rows, step), layout_.block(), scratch.stretch(steps, block_steps));
        const int64_t first = step * step_size, count = std::min<int64_t>(steps * step_size, row_size_ - first);
        for (int64_t k = 0; k < count; k++) {
            const int half = static_cast<int>(k / (step_size / 2));
            const int code = scratch.codes[k / 4 * group_bytes + lane * 4 + k % 4] - unpacked_lift(sums);
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
