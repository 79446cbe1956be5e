// The parts of the Python module. A folder's bind adds its functions and classes; bindings.cpp calls all, in this order.
#pragma once

#include <nanobind/nanobind.h>

#define QK_BOUND(X) \
    X(linear)       \
    X(llm_int8)     \
    X(moe)          \
    X(encode)       \
    X(decode)       \
    X(group_quant)  \
    X(fused)        \
    X(gptq)         \
    X(attention)    \
    X(mla)          \
    X(gram)         \
    X(trellis)      \
    X(blocks)       \
    X(link)         \
    X(tiers)

#define QK_DECLARE_BIND(folder) \
    namespace qk::folder { void bind(nanobind::module_& m); }
QK_BOUND(QK_DECLARE_BIND)
#undef QK_DECLARE_BIND

// Parts of a folder's bind in files of their own, which it calls.
namespace qk::attention {
void bind_latents(nanobind::module_& m);
void bind_store(nanobind::module_& m);
}  // namespace qk::attention

namespace qk::fused {
void bind_groups(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_layers(nanobind::module_& m);
}  // namespace qk::fused

namespace qk::mla { void bind_layers(nanobind::module_& m); }

// For bindings of other folders that take a ChosenBlocks; throws nb::type_error.
namespace qk::tiers {
class ChosenBlocks;
ChosenBlocks& chosen_blocks_of(nanobind::handle given);
}  // namespace qk::tiers
