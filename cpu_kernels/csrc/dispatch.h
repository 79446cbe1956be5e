// Which implementation of an op runs: a table per op, best first, over the features of this machine.
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isa.h"

namespace qk {

// A row of an op's table. `Kernels` holds the op's function pointers.
template <class Kernels>
struct Impl {
    Isa isa;
    Features required;
    Kernels kernels;

    bool available() const { return (detect() & required) == required; }
};

// The rows of AVX-512, AVX2 and scalar code, the last of every table: kernels(isa, ...) names the functions of one.
#if QK_X86_KERNELS
#define QK_X86_IMPLS(kernels, ...)                                               \
    {Isa::avx512, bit(Isa::avx512), kernels(avx512 __VA_OPT__(, ) __VA_ARGS__)}, \
        {Isa::avx2, bit(Isa::avx2), kernels(avx2 __VA_OPT__(, ) __VA_ARGS__)},
#else
#define QK_X86_IMPLS(kernels, ...)
#endif
#define QK_IMPLS(kernels, ...)                                                    \
    QK_X86_IMPLS(kernels __VA_OPT__(, ) __VA_ARGS__) {                            \
        Isa::scalar, bit(Isa::scalar), kernels(scalar __VA_OPT__(, ) __VA_ARGS__) \
    }

// The kernels of an op that has one function.
#define QK_KERNEL(isa, name) {isa::name}

// The instruction set of this name. Throws std::runtime_error if it is unknown or this machine lacks it.
Isa parse_isa(std::string_view name, std::string_view asked_by);

// QBENCH_ISA, or the best there is: nothing above this level runs unless a call asks for it by name.
// Throws like parse_isa. Reads the environment, so call it when nothing writes it (with the GIL held).
Isa highest_allowed_isa();

// Another number than before if one of the variables that choose implementations has another value since the last call.
// A search for each of the variables, so a decode step asks once. Call it when nothing writes the environment.
int64_t environment_version();

// std::runtime_error that names the op's implementations on this machine.
[[noreturn]] void throw_no_such_impl(std::string_view op, Isa asked, const std::string& available);

// The implementation that `isa` names exactly, or the first of the table at or below QBENCH_ISA.
template <class Kernels>
const Impl<Kernels>& choose(std::string_view op, std::span<const Impl<Kernels>> table,
                            std::optional<std::string_view> isa) {
    const Isa level = isa ? parse_isa(*isa, std::string(op) + ": isa") : highest_allowed_isa();
    std::string available;
    for (const auto& impl : table) {
        if (!impl.available()) continue;
        if (isa ? impl.isa == level : impl.isa <= level) return impl;
        available += (available.empty() ? "" : ", ") + std::string(name_of(impl.isa));
    }
    throw_no_such_impl(op, level, available);
}

// The row of one implementation in `op_table()`.
struct OpRow {
    std::string op;
    Isa isa;
    Features required;
    bool available;
    bool chosen;
};

template <class Kernels>
void append_rows(std::vector<OpRow>& rows, std::string_view op, std::span<const Impl<Kernels>> table) {
    const auto& chosen = choose(op, table, std::nullopt);
    for (const auto& impl : table)
        rows.push_back({std::string(op), impl.isa, impl.required, impl.available(), &impl == &chosen});
}

}  // namespace qk
