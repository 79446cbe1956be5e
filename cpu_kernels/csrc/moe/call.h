// One call of a layer's experts: the decisions before the first thread starts, and the stages.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "fused/row_steps.h"
#include "moe/experts.h"
#include "moe/routing.h"
#include "thread_pool.h"

namespace qk::moe {

// Numbers of all tokens below which one thread is done sooner than a second one wakes (about 2 us).
inline constexpr int64_t parallel_size = 1 << 15;

// All tokens of a call, rounded in one way.
struct Prepared {
    const linear::InputFormat* format;
    Isa isa;
    std::byte* tokens;
};

// Some tokens of one expert, for which its weights are read once.
struct Piece {
    const Expert* expert;
    linear::Choice gate, up, down;
    int64_t place, num_tokens;  // of Places
    bool is_run;                // the tokens follow each other; else they are gathered
    const Prepared *gate_input, *up_input;
    bool is_gated;              // gate and up are one product, which writes down_input; `hidden` is not used
    float* hidden;              // [num_tokens, I] silu(gate) * up
    std::byte* down_input;      // the same, rounded as `down` wants it
    std::atomic<int64_t> open_tasks{0};  // of gate and up: who ends the last one rounds
};

// Panels [begin, end) of a piece's gate and up.
struct GateUpTask {
    Piece* piece;
    int64_t begin, end;
};

// All of gate and up: bytes of their weights, and tokens times panels.
struct Stage { int64_t bytes, products; };

// The kernels that multiplied, each the last of its kind.
struct Ran { Isa gate, up, down; };

// Experts [begin, end) of a layer, shared ones counted last. A call with begin > 0 adds to y, so that the parts of a
// layer, one after the other, give the bits of the whole.
struct Some { int64_t begin, end; };

class Call {
public:
    // x, y [M, K], both contiguous; isa and path as in Weight::choose, for the tokens that an expert gets.
    // Reads the environment for its choices: with the GIL held.
    Call(const Experts& layer, const float* x, const Choices& choices, float* y, std::optional<std::string_view> isa,
         linear::Path path, const Some& some);

    // Writes y [M, K], or adds to it. Nothing is multiplied if no expert has a token.
    std::optional<Ran> run();

private:
    void add_pieces(const Expert& expert, int64_t begin, int64_t end, std::optional<std::string_view> isa,
                    linear::Path path);
    void add_gate_up_tasks(Piece& piece, const Stage& stage);
    void place_buffers();
    void round_token(int64_t token);
    const Prepared* prepared(const linear::Weight& weight, const linear::Choice& choice);
    linear::Input input_of(const Piece& piece, const Prepared& prepared) const;
    void gate_up(const GateUpTask& task);
    void round_hidden(const Piece& piece);
    void run_down();
    int64_t down_panels(int64_t num_panels) const;
    const float* down(const Piece& piece, int64_t begin, int64_t end);
    void add_to_tokens(const Piece& piece, const float* z, int64_t begin, int64_t end);

    const linear::Weight& first_gate() const { return *experts_.front().gate; }

    const std::vector<Expert>& experts_;
    const Impl<fused::RowSteps>& steps_;
    const std::shared_ptr<ThreadPool> pool_ = thread_pool();
    const float* x_;
    float* y_;
    int64_t num_tokens_;
    bool adds_;
    Places places_;
    std::deque<Piece> pieces_;
    std::vector<GateUpTask> gate_up_tasks_;
    std::deque<Prepared> prepared_;
    std::atomic<Isa> ran_gate_{}, ran_up_{}, ran_down_{};
};

}  // namespace qk::moe
