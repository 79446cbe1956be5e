#include "linear_trellis/weight.h"

#include <cstring>
#include <vector>

#include "linear/crossover.h"
#include "thread_pool.h"
#include "turn/turn.h"

namespace qk::linear_trellis {

using linear::ActivationBlock;
using linear::panel_rows;
using linear::Path;

namespace {

// From this number of tokens on codes are rounded to 8 bits. Fewer are multiplied as they are, a hash for all of
// them: 8 tokens take 1.6 times as long as by rounded codes with AVX-512 VNNI, and twice as long with AVX2; 4 tokens
// 1.1 and 1.4 times (one thread of Zen 5, N = K = 2048, 3 bits).
constexpr int64_t least_rounded_tokens = 8;

// From this number of tokens on bfloat16 tiles are faster than rounded codes. Unpacking, a hash for each value,
// takes more of the time than in other formats: see least_bf16_tokens.
constexpr int64_t least_trellis_bf16_tokens = 64;

}  // namespace

// x [K], turned, in memory of the thread
static const float* turned(const float* x, int64_t row_size, Isa isa) {
    thread_local std::vector<float> values;
    values.assign(x, x + row_size);
    const int size = turn::size_of(row_size);
    turn::kernels_of(isa).rows(values.data(), row_size / size, size, false);
    return values.data();
}

void TrellisInput::prepare_row(const float* x, std::byte* out, float shared, Isa isa) const {
    blocks_.prepare_row(turned(x, row_size_, isa), out, shared, isa);
    const auto* blocks = reinterpret_cast<const ActivationBlock*>(out);
    float sum = 0;
    for (int64_t i = 0; i * ActivationBlock::size < row_size_; i++) sum += blocks[i].scaled_sum;
    sum *= rounded_step * rounded_rest;
    std::memcpy(out + blocks_.token_bytes(), &sum, sizeof sum);
}

void TrellisTileInput::prepare(const float* x, const linear::Place& place, float shared, Isa isa) const {
    const float* const values = turned(x, row_size_, isa);
    tiles_.prepare(values, place, shared, isa);
    float sum = 0;
    for (int64_t k = 0; k < row_size_; k++) sum += values[k];
    sum *= rounded_step * rounded_rest;
    std::memcpy(rows().tail(place.tokens, place.num_tokens, place.token), &sum, sizeof sum);
}

bool TrellisTileInput::equals(const InputFormat& other) const {
    const auto* same = dynamic_cast<const TrellisTileInput*>(&other);
    return same && same->row_size_ == row_size_;
}

float TrellisTileInput::rest(const linear::Input& x, int64_t token) const {
    float sum;
    std::memcpy(&sum, rows().tail(x, token), sizeof sum);
    return sum;
}

bool TrellisInput::equals(const InputFormat& other) const {
    const auto* same = dynamic_cast<const TrellisInput*>(&other);
    return same && same->row_size_ == row_size_;
}

float TrellisInput::rest(const linear::Input& x, int64_t token) const {
    float sum;
    std::memcpy(&sum, x.tokens + token * x.token_bytes + blocks_.token_bytes(), sizeof sum);
    return sum;
}

TrellisWeight::TrellisWeight(const linear::TrellisFormat& format, std::string name, int64_t num_rows, int64_t row_size,
                             const linear::PanelLayout& layout, Buffer packed)
    : format_(format),
      layout_(layout),
      codes_(format, std::move(name), num_rows, row_size, layout, std::move(packed), linear::BlockInput(row_size)),
      input_(row_size),
      tile_input_(row_size) {}

linear::Switches TrellisWeight::switches(Isa isa) const {
    return linear::switch_points(format_.op)
        .of(isa, {linear::direct_tokens, least_rounded_tokens, least_trellis_bf16_tokens});
}

bool TrellisWeight::rounds(int64_t num_tokens, Isa isa) const {
    return linear::asked_rounding().value_or(!is_exact()) && num_tokens >= switches(isa).least_rerounded;
}

// Whether num_tokens tokens take the bf16 path if there is one.
bool TrellisWeight::rounds_to_bf16(int64_t num_tokens) const {
    return !is_exact() && !linear::asked_rounding() && num_tokens >= switches(Isa::amx).least_bf16;
}

// Both direct and tile are the product with values as they are, which has one loop. Tiles are of rounded codes.
linear::Choice TrellisWeight::choose(int64_t num_tokens, std::optional<std::string_view> isa, Path path) const {
    const bool has_tiles = qk::choose(format_.op, format_.table, isa).isa == Isa::amx;
    if (path == Path::automatic) path = linear::forced_path();
    if (has_tiles && path == Path::automatic && (isa || rounds_to_bf16(num_tokens))) path = Path::bf16;
    if (path == Path::bf16) return codes_.choose(num_tokens, isa, path);
    if (path == Path::automatic) {
        const Isa best = codes_.choose(num_tokens, isa, Path::direct).isa;
        path = rounds(num_tokens, best) ? Path::int8x256 : Path::direct;
    }
    const auto chosen = codes_.choose(num_tokens, isa, path == Path::int8x256 ? Path::tile : Path::direct);
    return {chosen.isa, path};
}

Isa TrellisWeight::multiply(int64_t begin, int64_t end, const linear::Input& x, float* y, int64_t y_stride,
                            const linear::Choice& choice) const {
    const bool is_bf16 = choice.path == Path::bf16, is_rounded = is_bf16 || choice.path == Path::int8x256;
    const Path path = is_bf16 ? Path::bf16 : is_rounded ? Path::tile : Path::direct;
    const Isa ran = codes_.multiply(begin, end, x, y, y_stride, {choice.isa, path});
    thread_local std::vector<float> rest;
    if (is_rounded) {
        rest.resize(static_cast<size_t>(x.num_tokens));
        for (int64_t token = 0; token < x.num_tokens; token++)
            rest[token] = is_bf16 ? tile_input_.rest(x, token) : input_.rest(x, token);
    }
    const int64_t first = begin * panel_rows;
    turn::kernels_of(choice.isa)
        .outputs({y + first, y_stride, x.num_tokens, end - begin, scale() + first, is_rounded ? rest.data() : nullptr});
    return ran;
}

float TrellisWeight::value(int64_t row, int64_t k) const {
    const int bits = format_.bits, in_panel = static_cast<int>(row % side);
    const uint8_t* step = codes_.bytes().data() + layout_.offset(row / side, k / linear::step_size);
    const int tile = static_cast<int>(k / side % 2), last = (static_cast<int>(k % side) + 1) * bits - 1;
    const auto word = [&](int in_row, int i) -> uint32_t {
        const Place place = place_of(bits, tile, i);
        uint16_t found;
        std::memcpy(&found, step + place.vector * vector_bytes + in_row * 4 + (place.is_upper ? 2 : 0), 2);
        return found;
    };
    const uint32_t before = last < 16 ? word((in_panel + 15) % 16, bits - 1) : word(in_panel, last / 16 - 1);
    const uint32_t state = (before << 16 | word(in_panel, last / 16)) >> (15 - last % 16);
    return static_cast<float>(trellis::value_of(state & ((1u << layout_.block().state_bits) - 1)));
}

// Those of a panel [K, 16], with the turn of their inputs taken back.
void TrellisWeight::turned_rows(int64_t panel, float* out) const {
    const int size = turn::size_of(row_size());
    std::vector<float> values(static_cast<size_t>(row_size()));
    for (int64_t row = 0; row < side; row++) {
        const float own = scale()[panel * side + row];
        for (int64_t k = 0; k < row_size(); k++) values[k] = value(panel * side + row, k) * own;
        turn::scalar::rows(values.data(), row_size() / size, size, true);
        for (int64_t k = 0; k < row_size(); k++) out[k * side + row] = values[k];
    }
}

void TrellisWeight::rows(const int64_t* index, int64_t num_indices, float* out) const {
    thread_pool()->run(num_indices, [&](int64_t i) {
        std::vector<float> panel(static_cast<size_t>(row_size() * side));
        turned_rows(index[i] / side, panel.data());
        turn::scalar::rows(panel.data(), row_size(), side, true);
        for (int64_t k = 0; k < row_size(); k++) out[i * row_size() + k] = panel[k * side + index[i] % side];
    });
}

}  // namespace qk::linear_trellis
