#include "moe/call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "linear/tile_rows.h"
#include "scratch.h"
#include "moe/turns.h"
#include "timeline.h"

namespace qk::moe {
namespace {

using linear::Input;
using linear::panel_rows;
using linear::Weight;

// Weight bytes of a task: a stage's share, so that each thread takes 16 of them and one that loses its core leaves the
// rest to the others, within bounds. Where a task begins, and where it goes from gate to up, the processor's
// prefetching starts again, 0.3 us of misses: a fourth of the time of 128 KiB that a core reads at 27 GB/s, 3 % of that
// of 1 MiB.
constexpr int64_t tasks_per_thread = 16;
constexpr int64_t least_task_bytes = 128 << 10, most_task_bytes = 1 << 20;

// Tokens of a piece at most, in whole tiles of 12. Rounded, at K = 2048, they are 144 * 4 KB = 590 KB: with two panels
// of bf16 and the next two, 260 KB, an L2 of 1 MB holds them. More would save little: 288 per weight are many.
constexpr int64_t tile_tokens = 12;
constexpr int64_t piece_tokens = 12 * tile_tokens;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Beyond this number of tokens the products take the time, and a task is a share of them: whole groups of panels,
// within which a product shares a stretch of activations and fetches each panel while it multiplies the one before.
constexpr int64_t few_tokens = 4;
constexpr int64_t group_panels = 8;

// Outputs of gate and up that a task leaves in an L2 of 1 MB next to its tokens and the panels that pass.
constexpr int64_t most_output_bytes = 256 << 10;

// Panels of `down` in a task of many tokens: twice as many stretches as threads keep those apart that take turns, and
// 144 tokens of 32 panels are 295 KB of outputs in the L2.
constexpr int64_t most_down_panels = 4 * group_panels;

// Rows of y that are fetched ahead: 2 of 32 panels are 4 KB, which 0.1 us of adding, memory's latency, falls short of.
constexpr int64_t rows_ahead = 2;

// Bytes per task in a stage of few tokens that reads stage_bytes.
int64_t task_bytes(int64_t stage_bytes, int num_threads) {
    return std::clamp(stage_bytes / (tasks_per_thread * num_threads), least_task_bytes, most_task_bytes);
}

// Panels of a task that reads as many of each of these weights: whole pairs, the width of the widest tile, and whole
// runs of those that are side by side.
int64_t panels_of_bytes(std::initializer_list<const Weight*> weights, int64_t bytes) {
    int64_t together = 2, panel_bytes = 0;
    for (const Weight* weight : weights) {
        together = std::max<int64_t>(together, weight->panels_a_task());
        panel_bytes += weight->nbytes() / weight->num_panels();
    }
    return together * std::max<int64_t>(1, bytes / (together * panel_bytes + 1));
}

// Panels of a task that multiplies all tokens with up to `most` of num_panels: equal shares of whole groups.
int64_t panels_of_share(int64_t num_panels, int64_t most) {
    const int64_t num_tasks = ceil_div(num_panels, std::max(most, group_panels));
    return ceil_div(ceil_div(num_panels, num_tasks), group_panels) * group_panels;
}

template <class Task>
void run_if_large(ThreadPool& pool, bool large, int64_t num_tasks, const Task& task) {
    if (large)
        pool.run(num_tasks, task);
    else
        for (int64_t i = 0; i < num_tasks; i++) task(i);
}

// The best there is at or below the products' instruction set: these may be forced to a set without steps of its own.
const Impl<fused::RowSteps>& steps_for(std::optional<std::string_view> isa) {
    const Isa level = isa ? parse_isa(*isa, "fused_rows: isa") : highest_allowed_isa();
    for (const auto& impl : fused::row_steps_table())
        if (impl.available() && impl.isa <= level) return impl;
    throw_no_such_impl("fused_rows", level, "none");
}

// Where a product writes the columns of panels from `begin` on, if its rows [stride] begin at `rows`.
float* columns_from(float* rows, int64_t begin) { return rows - begin * panel_rows; }

}  // namespace

Call::Call(const Experts& layer, const float* x, const Choices& choices, float* y, std::optional<std::string_view> isa,
           linear::Path path, const Some& some)
    : experts_(layer.experts()),
      steps_(steps_for(isa)),
      x_(x),
      y_(y),
      num_tokens_(choices.num_tokens),
      adds_(some.begin > 0),
      places_(sort_by_expert(choices, static_cast<int64_t>(experts_.size()), layer.num_shared())) {
    for (int64_t e = some.begin; e < some.end; e++)
        add_pieces(experts_[e], places_.begin[e], places_.begin[e + 1], isa, path);
    Stage stage{};
    for (const Piece& piece : pieces_) {
        stage.bytes += piece.expert->gate->nbytes() + piece.expert->up->nbytes();
        stage.products += piece.num_tokens * piece.expert->gate->num_panels();
    }
    for (Piece& piece : pieces_) add_gate_up_tasks(piece, stage);
}

void Call::add_pieces(const Expert& expert, int64_t begin, int64_t end, std::optional<std::string_view> isa,
                      linear::Path path) {
    const int64_t num_pieces = ceil_div(end - begin, piece_tokens);
    if (num_pieces == 0) return;
    const int64_t most = ceil_div(ceil_div(end - begin, num_pieces), tile_tokens) * tile_tokens;
    for (int64_t place = begin; place < end; place += most) {
        Piece& piece = pieces_.emplace_back();
        piece.expert = &expert;
        piece.place = place;
        piece.num_tokens = std::min(most, end - place);
        piece.gate = expert.gate->choose(piece.num_tokens, isa, path);
        piece.up = expert.up->choose(piece.num_tokens, isa, path);
        piece.down = expert.down->choose(piece.num_tokens, isa, path);
        piece.is_gated =
            piece.gate == piece.up && expert.gate->gates(*expert.up, piece.gate, expert.down->input(piece.down));
        const auto token = places_.token.begin() + place, last = token + piece.num_tokens;
        piece.gate_input = prepared(*expert.gate, piece.gate);
        piece.up_input = prepared(*expert.up, piece.up);
        piece.is_run = std::adjacent_find(token, last, [](int64_t a, int64_t b) { return b != a + 1; }) == last;
    }
}

// The input of a product. All products that round it in the same way share it.
const Prepared* Call::prepared(const Weight& weight, const linear::Choice& choice) {
    const linear::InputFormat& format = weight.input(choice);
    for (const Prepared& known : prepared_)
        if (known.format->equals(format)) return &known;
    return &prepared_.emplace_back(Prepared{&format, choice.isa, nullptr});
}

void Call::add_gate_up_tasks(Piece& piece, const Stage& stage) {
    const Expert& expert = *piece.expert;
    const int64_t num_panels = expert.gate->num_panels();
    const int64_t num_shares = tasks_per_thread * pool_->num_threads();
    const int64_t output_bytes = 2 * piece.num_tokens * panel_rows * int64_t{sizeof(float)};
    const int64_t most = std::min(stage.products / num_shares / piece.num_tokens, most_output_bytes / output_bytes);
    const int64_t step = piece.num_tokens > few_tokens ? panels_of_share(num_panels, most)
                                                       : panels_of_bytes({expert.gate.get(), expert.up.get()},
                                                                         task_bytes(stage.bytes, pool_->num_threads()));
    for (int64_t begin = 0; begin < num_panels; begin += step)
        gate_up_tasks_.push_back({&piece, begin, std::min(num_panels, begin + step)});
    piece.open_tasks = ceil_div(num_panels, step);
}

std::optional<Ran> Call::run() {
    const timeline::Scope products(timeline::Part::products);
    place_buffers();
    const bool large = num_tokens_ * first_gate().row_size() >= parallel_size;
    run_if_large(*pool_, large, num_tokens_, [&](int64_t token) { round_token(token); });
    pool_->run(gate_up_tasks_.size(), [&](int64_t i) { gate_up(gate_up_tasks_[i]); });
    run_down();
    if (pieces_.empty()) return std::nullopt;
    return Ran{ran_gate_, ran_up_, ran_down_};
}

void Call::place_buffers() {
    size_t size = 0;
    // Twice over the same sizes: first their sum, then the place of each.
    thread_local Scratch scratch;
    std::byte* base = nullptr;
    const auto take = [&](size_t bytes) { return base + std::exchange(size, size + aligned(bytes)); };
    const auto take_all = [&] {
        for (Prepared& input : prepared_) input.tokens = take(input.format->bytes(num_tokens_));
        for (Piece& piece : pieces_) {
            const Weight& down = *piece.expert->down;
            piece.down_input = take(down.input(piece.down).bytes(piece.num_tokens));
            if (!piece.is_gated)
                piece.hidden = reinterpret_cast<float*>(take(piece.num_tokens * down.row_size() * sizeof(float)));
        }
    };
    take_all();
    base = scratch.get(size);
    size = 0;
    take_all();
}

void Call::round_token(int64_t token) {
    const int64_t hidden_size = first_gate().row_size();
    for (const Prepared& input : prepared_)
        input.format->prepare(x_ + token * hidden_size, {input.tokens, num_tokens_, token}, 0, steps_.isa);
    if (!adds_) std::fill_n(y_ + token * hidden_size, hidden_size, 0.0f);
}

// Tokens of an expert, side by side: in their place, or copied to this thread's own memory, which it keeps in its L2.
Input Call::input_of(const Piece& piece, const Prepared& prepared) const {
    const int64_t* token = &places_.token[piece.place];
    if (piece.is_run && token[0] % linear::tile_rows == 0)
        return prepared.format->view(prepared.tokens, num_tokens_, token[0], piece.num_tokens);
    thread_local Scratch scratch;
    std::byte* const gathered = scratch.get(prepared.format->bytes(piece.num_tokens));
    const Input all = prepared.format->view(prepared.tokens, num_tokens_, 0, num_tokens_);
    for (int64_t i = 0; i < piece.num_tokens; i++)
        prepared.format->copy(all, token[i], {gathered, piece.num_tokens, i});
    return prepared.format->view(gathered, piece.num_tokens, 0, piece.num_tokens);
}

void Call::gate_up(const GateUpTask& task) {
    Piece& piece = *task.piece;
    const Weight &gate = *piece.expert->gate, &up = *piece.expert->up;
    if (piece.is_gated) {
        ran_gate_ = ran_up_ = gate.multiply_gated(up, task.begin, task.end, input_of(piece, *piece.gate_input),
                                                  piece.expert->down->input(piece.down),
                                                  {piece.down_input, piece.num_tokens, 0}, piece.gate);
        return;
    }
    const int64_t first = task.begin * panel_rows, stride = (task.end - task.begin) * panel_rows;
    const int64_t num_columns = std::min(stride, gate.num_rows() - first);
    thread_local Scratch scratch;
    auto* g = reinterpret_cast<float*>(scratch.get(2 * piece.num_tokens * stride * sizeof(float)));
    float* u = g + piece.num_tokens * stride;
    ran_gate_ = gate.multiply(task.begin, task.end, input_of(piece, *piece.gate_input), columns_from(g, task.begin),
                              stride, piece.gate);
    ran_up_ = up.multiply(task.begin, task.end, input_of(piece, *piece.up_input), columns_from(u, task.begin), stride,
                          piece.up);
    for (int64_t i = 0; i < piece.num_tokens; i++)
        steps_.kernels.silu_mul(g + i * stride, u + i * stride, num_columns,
                                piece.hidden + i * gate.num_rows() + first);
    if (piece.open_tasks.fetch_sub(1, std::memory_order_acq_rel) == 1) round_hidden(piece);
}

void Call::round_hidden(const Piece& piece) {
    const Weight& down = *piece.expert->down;
    for (int64_t i = 0; i < piece.num_tokens; i++)
        down.input(piece.down)
            .prepare(piece.hidden + i * down.row_size(), {piece.down_input, piece.num_tokens, i}, 0, steps_.isa);
}

void Call::run_down() {
    if (pieces_.empty()) return;
    const int64_t num_panels = ceil_div(first_gate().row_size(), panel_rows);
    const int64_t step = down_panels(num_panels);
    const int64_t num_stretches = ceil_div(num_panels, step);
    Turns turns(num_stretches);
    std::atomic<int64_t> next{0};  // the pool promises no order, and Turns need one
    pool_->run(static_cast<int64_t>(pieces_.size()) * num_stretches, [&](int64_t) {
        const int64_t task = next.fetch_add(1, std::memory_order_relaxed);
        const int64_t index = task / num_stretches, stretch = task % num_stretches;
        const int64_t begin = stretch * step, end = std::min(num_panels, begin + step);
        const float* z = down(pieces_[index], begin, end);
        turns.wait_for(stretch, index);
        add_to_tokens(pieces_[index], z, begin, end);
        turns.pass_on(stretch);
    });
}

// Panels of a task: the same for all pieces, as they take turns.
int64_t Call::down_panels(int64_t num_panels) const {
    if (num_tokens_ > few_tokens)
        return panels_of_share(num_panels, std::min(num_panels / (2 * pool_->num_threads()), most_down_panels));
    int64_t stage_bytes = 0, panels = num_panels;
    for (const Piece& piece : pieces_) stage_bytes += piece.expert->down->nbytes();
    const int64_t bytes = task_bytes(stage_bytes, pool_->num_threads());
    for (const Piece& piece : pieces_) panels = std::min(panels, panels_of_bytes({piece.expert->down.get()}, bytes));
    return panels;
}

const float* Call::down(const Piece& piece, int64_t begin, int64_t end) {
    const Weight& weight = *piece.expert->down;
    const int64_t stride = (end - begin) * panel_rows;
    thread_local Scratch scratch;
    auto* z = reinterpret_cast<float*>(scratch.get(piece.num_tokens * stride * sizeof(float)));
    const Input input = weight.input(piece.down).view(piece.down_input, piece.num_tokens, 0, piece.num_tokens);
    ran_down_ = weight.multiply(begin, end, input, columns_from(z, begin), stride, piece.down);
    return z;
}

void Call::add_to_tokens(const Piece& piece, const float* z, int64_t begin, int64_t end) {
    const int64_t hidden_size = first_gate().row_size();
    const int64_t first = begin * panel_rows, stride = (end - begin) * panel_rows;
    const int64_t num_columns = std::min(stride, hidden_size - first);
    const auto row = [&](int64_t place) { return y_ + places_.token[place] * hidden_size + first; };
    const int64_t last_place = piece.place + piece.num_tokens - 1;
    for (int64_t i = 0; i < piece.num_tokens; i++, z += stride) {
        const int64_t place = piece.place + i;
        // Rows of tokens are anywhere, and too short for the processor to foresee the next.
        const float* next = row(std::min(place + rows_ahead, last_place));
        for (int64_t n = 0; n < num_columns; n += 16) __builtin_prefetch(next + n, 1);
        const float weight = places_.weight[place];
        float* y = row(place);
        for (int64_t n = 0; n < num_columns; n++) y[n] += weight * z[n];
    }
}

}  // namespace qk::moe
