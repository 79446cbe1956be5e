#include "linear_float/weight.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "linear/crossover.h"
#include "thread_pool.h"

namespace qk::linear_float {
namespace {

constexpr std::string_view names[] = {"bf16", "f16", "f32"};

// Up to this number of tokens an f16 weight is multiplied as stored, in float32: its bytes are the limit, or close
// to it. Beyond, the tile path rounds both sides to bfloat16 where the machine multiplies that. Measured on a 2-core
// AVX-512 BF16 machine, K = 2048, N = 8192, one thread: 8 tokens take 3.1 ms either way.
constexpr int64_t most_direct_f16_tokens = 7;

// QBENCH_F16_COMPUTE=float32: f16 weights are multiplied as stored whatever the number of tokens; bfloat16: rounded
// for many, those too that were asked to be exact.
bool may_round_f16(bool is_exact) {
    const char* asked = std::getenv("QBENCH_F16_COMPUTE");
    if (!asked || !*asked) return !is_exact;
    if (std::string_view(asked) == "bfloat16") return true;
    if (std::string_view(asked) == "float32") return false;
    throw std::runtime_error("QBENCH_F16_COMPUTE=" + std::string(asked) + ": expected bfloat16 or float32");
}

bool has_bf16_products() { return (detect() & (bit(Isa::avx512_bf16) | bit(Isa::amx))) != 0; }

Multiply find(Kind kind, Isa isa) {
    for (const auto& impl : table(kind))
        if (impl.isa == isa) return impl.kernels.multiply;
    throw std::logic_error(std::string(ops[static_cast<int>(kind)].name) + " has no " + name_of(isa));
}

}  // namespace

FloatInput::FloatInput(int64_t row_size, bool has_f32, bool has_bf16)
    : row_size_(row_size), has_f32_(has_f32), has_bf16_(has_bf16) {
    const auto f32_bytes = static_cast<size_t>(linear::round_up(row_size * 4, 64));
    const auto bf16_bytes = static_cast<size_t>(padded_row(Kind::bf16, row_size) * 2);
    bf16_offset_ = has_f32 ? f32_bytes : 0;
    token_bytes_ = linear::token_stride(bf16_offset_ + (has_bf16 ? bf16_bytes : 0));
}

void FloatInput::prepare_row(const float* x, std::byte* out, float, Isa isa) const {
    if (has_f32_) std::memcpy(out, x, static_cast<size_t>(row_size_) * 4);
    if (!has_bf16_) return;
    auto* rounded = reinterpret_cast<uint16_t*>(out + bf16_offset_);
    round_to_bf16(isa)(x, row_size_, rounded);
    std::fill(rounded + row_size_, rounded + padded_row(Kind::bf16, row_size_), uint16_t{0});
}

bool FloatInput::equals(const linear::InputFormat& other) const {
    const auto* same = dynamic_cast<const FloatInput*>(&other);
    return same && same->row_size_ == row_size_ && same->has_f32_ == has_f32_ && same->has_bf16_ == has_bf16_;
}

FloatWeight::FloatWeight(Packed packed)
    : PackedWeight(std::move(packed), linear::TileInput(packed.row_size()), packed.kind() != Kind::bf16,
                   packed.kind() == Kind::bf16 || (packed.kind() == Kind::f16 && has_bf16_products())) {}

std::string_view FloatWeight::format() const { return names[static_cast<int>(packed_.kind())]; }

// bf16 and f32 are multiplied as stored and nothing is unpacked: both paths are one.
linear::Choice FloatWeight::choose(int64_t num_tokens, std::optional<std::string_view> isa, linear::Path path) const {
    path = linear::stored_path(path, format());
    const Kind kind = packed_.kind();
    const char* op = ops[static_cast<int>(kind)].name;
    const Isa best = qk::choose(op, table(kind), isa).isa;
    const bool rounds = kind == Kind::f16 && best >= Isa::avx512_bf16;
    if (!rounds) return {best, path == linear::Path::tile ? path : linear::Path::direct};
    if (isa) {
        if (path == linear::Path::direct)
            throw std::runtime_error(std::string(op) + " has no " + name_of(best) +
                                     " implementation of the direct path");
        return {best, linear::Path::tile};
    }
    const bool many = path == linear::Path::tile || num_tokens > most_direct_f16_tokens;
    if (path != linear::Path::direct && many && may_round_f16(is_exact())) return {best, linear::Path::tile};
    return {Isa::avx512, path == linear::Path::tile ? path : linear::Path::direct};
}

Isa FloatWeight::multiply(int64_t begin, int64_t end, const linear::Input& x, float* y, int64_t y_stride,
                          const linear::Choice& choice) const {
    const Kind kind = packed_.kind();
    const bool has_offset = choice.isa != Isa::amx && (kind == Kind::bf16 || choice.isa == Isa::avx512_bf16);
    const linear::Input part{x.tokens + (has_offset ? input_.bf16_offset() : 0), x.token_bytes, x.num_tokens};
    return find(kind, choice.isa)(packed_.panels(), begin, end, part, {y, y_stride, false});
}

void FloatWeight::rows(const int64_t* index, int64_t num_indices, float* out) const {
    thread_pool()->run(num_indices, [&](int64_t i) {
        for (int64_t k = 0; k < row_size(); k++) out[i * row_size() + k] = packed_.value(index[i], k);
    });
}

}  // namespace qk::linear_float
