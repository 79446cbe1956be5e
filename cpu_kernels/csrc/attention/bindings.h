// Attention as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

#include "attention/attention.h"
#include "checks.h"

namespace qk::attention {

void bind(nanobind::module_& m);

// For bindings that take a KVStore: what is behind it, its sequences with `tokens` new ones, and what runs. They throw
// nb::type_error, std::invalid_argument; the last reads the environment.
Store& store_of(nanobind::handle kv_store);
Sequences sequences_of(nanobind::handle kv_store, const Array& table, const Array& lengths, int64_t batch,
                       int64_t tokens, int64_t window);
const Impl<Kernels>& choose_attention();

}  // namespace qk::attention
