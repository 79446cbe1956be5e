#include "moe/call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "scratch.h"
#include "moe/turns.h"

namespace qk::moe {
namespace {

using linear::Input;
using linear::panel_rows;
using linear::Weight;

// Weight bytes of a task: a stage's share, so that each thread takes 16 of them and one that loses its core leaves the
// rest to the others, within bounds. Where a task begins, and where it goes from gate to up, the processor's
// prefetching starts anew, 0.3 us of misses: a fourth of the time of 128 KiB that a core reads at 27 GB/s, 3 % of that
// of 1 MiB.
constexpr int64_t tasks_per_thread = 16;
constexpr int64_t least_task_bytes = 128 << 10, most_task_bytes = 1 << 20;

// Tokens of a piece at most, in whole tiles of 12. Rounded, at K = 2048, they are 144 * 4 KB = 590 KB: with two panels
// of bf16 and the next two, 260 KB, an L2 of 1 MB holds them. More would save little: 288 operations a weight are many.
constexpr int64_t tile_tokens = 12;
constexpr int64_t piece_tokens = 12 * tile_tokens;

// Activations below which one thread rounds or copies them sooner than a second one wakes (about 2 us).
constexpr int64_t parallel_size = 1 << 15;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Beyond so many tokens a task has a whole group of panels, within which a product shares a stretch of activations and
// fetches each panel while it multiplies the one before: 0.1 ms for gate and up of 32 tokens at K = 2048.
constexpr int64_t few_tokens = 4;
constexpr int64_t group_panels = 8;

// Of a stage that reads so many; one that multiplies many tokens does not wait for them.
int64_t task_bytes(int64_t stage_bytes, int64_t num_tokens, int num_threads) {
    if (num_tokens > few_tokens) return least_task_bytes;
    return std::clamp(stage_bytes / (tasks_per_thread * num_threads), least_task_bytes, most_task_bytes);
}

// Panels of a task that reads as many of each of these weights: whole pairs, the width of the widest tile.
int64_t task_panels(std::initializer_list<const Weight*> weights, int64_t bytes, int64_t num_tokens) {
    int64_t pair_bytes = 1;
    for (const Weight* weight : weights) pair_bytes += 2 * weight->nbytes() / weight->num_panels();
    const int64_t panels = 2 * std::max<int64_t>(1, bytes / pair_bytes);
    return num_tokens > few_tokens ? std::max(panels, group_panels) : panels;
}

template <class Task>
void run_if_large(ThreadPool& pool, bool large, int64_t num_tasks, const Task& task) {
    if (large)
        pool.run(num_tasks, task);
    else
        for (int64_t i = 0; i < num_tasks; i++) task(i);
}

// The best there is at or below what the products run under: they may be forced to a set that has no steps of its own.
const Impl<fused::RowSteps>& steps_for(std::optional<std::string_view> isa) {
    const Isa level = isa ? parse_isa(*isa, "isa") : highest_allowed_isa();
    for (const auto& impl : fused::row_steps_table())
        if (impl.available() && impl.isa <= level) return impl;
    throw_no_such_impl("fused_rows", level, "none");
}

// Where a product writes the columns of panels from `begin` on, if its rows [stride] begin at `rows`.
float* columns_from(float* rows, int64_t begin) { return rows - begin * panel_rows; }

}  // namespace

Call::Call(const Experts& layer, const float* x, const Choices& choices, float* y, std::optional<std::string_view> isa,
           linear::Path path)
    : experts_(layer.experts()),
      steps_(steps_for(isa)),
      x_(x),
      y_(y),
      num_tokens_(choices.num_tokens),
      places_(sort_by_expert(choices, static_cast<int64_t>(experts_.size()), layer.num_shared())) {
    for (size_t e = 0; e < experts_.size(); e++)
        add_pieces(experts_[e], places_.begin[e], places_.begin[e + 1], isa, path);
    int64_t bytes = 0;
    for (const Piece& piece : pieces_) bytes += piece.expert->gate->nbytes() + piece.expert->up->nbytes();
    for (Piece& piece : pieces_) add_gate_up_tasks(piece, bytes);
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
        const int64_t* token = &places_.token[place];
        piece.first_token = token[0];
        for (int64_t i = 1; i < piece.num_tokens; i++)
            if (token[i] != token[0] + i) piece.first_token = -1;
    }
}

void Call::add_gate_up_tasks(Piece& piece, int64_t stage_bytes) {
    const Expert& expert = *piece.expert;
    const int64_t num_panels = expert.gate->num_panels();
    const int64_t bytes = task_bytes(stage_bytes, piece.num_tokens, pool_->num_threads());
    const int64_t step = task_panels({expert.gate.get(), expert.up.get()}, bytes, piece.num_tokens);
    for (int64_t begin = 0; begin < num_panels; begin += step)
        gate_up_tasks_.push_back({&piece, begin, std::min(num_panels, begin + step)});
    piece.open_tasks = ceil_div(num_panels, step);
}

std::optional<Ran> Call::run() {
    place_buffers();
    const bool large = num_tokens_ * first_gate().row_size() >= parallel_size;
    run_if_large(*pool_, large, num_tokens_, [&](int64_t token) { round_token(token); });
    run_if_large(*pool_, large, pieces_.size(), [&](int64_t i) { gather(pieces_[i]); });
    pool_->run(gate_up_tasks_.size(), [&](int64_t i) { gate_up(gate_up_tasks_[i]); });
    run_down();
    if (pieces_.empty()) return std::nullopt;
    return Ran{ran_gate_, ran_up_, ran_down_};
}

void Call::place_buffers() {
    const size_t token_bytes = first_gate().input().token_bytes();
    size_t size = aligned(num_tokens_ * token_bytes);
    // Twice over the same sizes: first what they sum up to, then where each lies.
    thread_local Scratch scratch;
    std::byte* base = nullptr;
    const auto take = [&](size_t bytes) { return base + std::exchange(size, size + aligned(bytes)); };
    const auto take_all = [&] {
        for (Piece& piece : pieces_) {
            const Weight& down = *piece.expert->down;
            const bool gathers = piece.first_token < 0;
            // Gathered tokens have been read when the piece's hidden values are rounded, and give them their place.
            piece.down_input =
                take(piece.num_tokens * std::max(gathers ? token_bytes : 0, down.input().token_bytes()));
            piece.input = gathers ? piece.down_input : tokens_ + piece.first_token * token_bytes;
            piece.hidden = reinterpret_cast<float*>(take(piece.num_tokens * down.row_size() * sizeof(float)));
        }
    };
    take_all();
    base = tokens_ = scratch.get(size);
    size = aligned(num_tokens_ * token_bytes);
    take_all();
}

void Call::round_token(int64_t token) {
    const int64_t hidden_size = first_gate().row_size();
    const linear::InputFormat& input = first_gate().input();
    input.prepare(x_ + token * hidden_size, tokens_ + token * input.token_bytes(), 0, steps_.isa);
    std::fill_n(y_ + token * hidden_size, hidden_size, 0.0f);
}

void Call::gather(const Piece& piece) {
    if (piece.first_token >= 0) return;
    const size_t token_bytes = first_gate().input().token_bytes();
    std::byte* out = piece.down_input;
    for (int64_t i = 0; i < piece.num_tokens; i++)
        std::memcpy(out + i * token_bytes, tokens_ + places_.token[piece.place + i] * token_bytes, token_bytes);
}

void Call::gate_up(const GateUpTask& task) {
    Piece& piece = *task.piece;
    const Weight &gate = *piece.expert->gate, &up = *piece.expert->up;
    const int64_t first = task.begin * panel_rows, stride = (task.end - task.begin) * panel_rows;
    const int64_t num_columns = std::min(stride, gate.num_rows() - first);
    thread_local Scratch scratch;
    auto* g = reinterpret_cast<float*>(scratch.get(2 * piece.num_tokens * stride * sizeof(float)));
    float* u = g + piece.num_tokens * stride;
    const Input input{piece.input, gate.input().token_bytes(), piece.num_tokens};
    ran_gate_ = gate.multiply(task.begin, task.end, input, columns_from(g, task.begin), stride, piece.gate);
    ran_up_ = up.multiply(task.begin, task.end, input, columns_from(u, task.begin), stride, piece.up);
    for (int64_t i = 0; i < piece.num_tokens; i++)
        steps_.kernels.silu_mul(g + i * stride, u + i * stride, num_columns,
                                piece.hidden + i * gate.num_rows() + first);
    if (piece.open_tasks.fetch_sub(1, std::memory_order_acq_rel) == 1) round_hidden(piece);
}

void Call::round_hidden(const Piece& piece) {
    const Weight& down = *piece.expert->down;
    for (int64_t i = 0; i < piece.num_tokens; i++)
        down.input().prepare(piece.hidden + i * down.row_size(), piece.down_input + i * down.input().token_bytes(), 0,
                             steps_.isa);
}

void Call::run_down() {
    if (pieces_.empty()) return;
    const int64_t num_panels = ceil_div(first_gate().row_size(), panel_rows);
    int64_t stage_bytes = 0;
    for (const Piece& piece : pieces_) stage_bytes += piece.expert->down->nbytes();
    const int64_t bytes = task_bytes(stage_bytes, num_tokens_, pool_->num_threads());
    int64_t step = num_panels;  // the same for all, as they take turns
    for (const Piece& piece : pieces_)
        step = std::min(step, task_panels({piece.expert->down.get()}, bytes, num_tokens_));
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

const float* Call::down(const Piece& piece, int64_t begin, int64_t end) {
    const Weight& weight = *piece.expert->down;
    const int64_t stride = (end - begin) * panel_rows;
    thread_local Scratch scratch;
    auto* z = reinterpret_cast<float*>(scratch.get(piece.num_tokens * stride * sizeof(float)));
    const Input input{piece.down_input, weight.input().token_bytes(), piece.num_tokens};
    ran_down_ = weight.multiply(begin, end, input, columns_from(z, begin), stride, piece.down);
    return z;
}

void Call::add_to_tokens(const Piece& piece, const float* z, int64_t begin, int64_t end) {
    const int64_t hidden_size = first_gate().row_size();
    const int64_t first = begin * panel_rows, stride = (end - begin) * panel_rows;
    const int64_t num_columns = std::min(stride, hidden_size - first);
    for (int64_t i = 0; i < piece.num_tokens; i++, z += stride) {
        const int64_t place = piece.place + i;
        const float weight = places_.weight[place];
        float* y = y_ + places_.token[place] * hidden_size + first;
        for (int64_t n = 0; n < num_columns; n++) y[n] += weight * z[n];
    }
}

}  // namespace qk::moe
