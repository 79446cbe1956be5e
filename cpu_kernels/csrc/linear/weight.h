// A packed matrix [N, K] and the product with it: the interface of every format, whatever its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "isa.h"
#include "linear/input.h"

namespace qk::linear {

// Output rows are packed 16 side by side: the 32-bit lanes of a 512-bit register. A panel is those 16 rows over all K.
inline constexpr int panel_rows = 16;

// The same of tile instructions: see tile_product.inl.
inline constexpr int tile_panels_at_once = 32;

// direct  each group of codes is unpacked in registers and multiplied at once: one token or a few
// tile    a stretch of a panel is unpacked into the L1 and multiplied with all tokens: many
// int8x256  the same, with the stretch rounded to 8 bits before: K-quants with one scale for 256 inputs of a row, and
//           trellis codes with one for the row
// bf16    weights and activations rounded to bfloat16, by tile instructions: many
enum class Path : uint8_t { automatic, direct, tile, int8x256, bf16 };

// The implementation, decided once per call.
struct Choice {
    Isa isa;
    Path path;

    bool operator==(const Choice&) const = default;
};

// Added to a product before it is stored: bias [N] first, then residual [M, residual_stride], which may be the output
// itself. Each may be null.
struct Addends {
    const float* bias;
    const float* residual;
    int64_t residual_stride;
};

class Weight {
public:
    virtual ~Weight() = default;

    virtual std::string_view format() const = 0;  // as quant names it: "q4_k", "w4g128", "w8a8", "bf16"
    virtual int64_t num_rows() const = 0;         // N
    virtual int64_t row_size() const = 0;         // K
    virtual std::span<const uint8_t> bytes() const = 0;  // the packed layout
    size_t nbytes() const { return bytes().size(); }
    int64_t num_panels() const { return (num_rows() + panel_rows - 1) / panel_rows; }

    // Panels that are side by side: a task has whole runs of them if it can.
    virtual int panels_a_task() const { return 1; }

    // Panels that share data in the caches under this choice: a task has as many if there are enough.
    virtual int panels_at_once(const Choice& choice) const {
        return choice.isa == Isa::amx ? tile_panels_at_once : panels_a_task();
    }

    // The activations that `multiply` reads under this choice.
    virtual const InputFormat& input(const Choice& choice) const = 0;
    // The activations of the scalar kernel.
    const InputFormat& input() const { return input({Isa::scalar, Path::direct}); }

    // From now on multiplied as stored whatever the number of tokens, so that a token's result does not depend on it;
    // only the environment says otherwise. Called before anyone else has the weight.
    void require_exact() { is_exact_ = true; }

    // The implementation for this many tokens: the one that isa names exactly, or the best at or below QBENCH_ISA;
    // the path as asked, or by the measured crossover. Throws std::runtime_error where the name is not there.
    virtual Choice choose(int64_t num_tokens, std::optional<std::string_view> isa, Path path) const = 0;

    // y[t * y_stride + n] for the rows n of panels [begin, end) and every token t of x; nothing else is written.
    // Any thread may call it, for any range. Returns its own name: the proof that it ran.
    virtual Isa multiply(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                         const Choice& choice) const = 0;

    // The same, and the addends; here in memory of its own first.
    virtual Isa multiply_and_add(int64_t begin, int64_t end, const Input& x, float* y, int64_t y_stride,
                                 const Addends& addends, const Choice& choice) const;

    // Whether multiply_gated does this weight and `up`, with `to` as the tokens that another product reads.
    virtual bool gates(const Weight&, const Choice&, const InputFormat&) const { return false; }

    // silu(x @ this^T) * (x @ up^T) for the rows of panels [begin, end) of both weights becomes those features of the
    // tokens at `to`, from to.token on; no other byte is written. Otherwise as `multiply`.
    virtual Isa multiply_gated(const Weight&, int64_t, int64_t, const Input&, const InputFormat&, const Place&,
                               const Choice&) const {
        throw std::logic_error(std::string(format()) + " has no gated product");
    }

    // Row index[i] as float32 in out[i], as its stored bytes say. index [n] in [0, N); out [n, K]
    virtual void rows(const int64_t* index, int64_t num_indices, float* out) const = 0;

protected:
    bool is_exact() const { return is_exact_; }

private:
    bool is_exact_ = false;
};

}  // namespace qk::linear
