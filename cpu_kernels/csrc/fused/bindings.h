// The fused steps as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "dispatch.h"

namespace qk::fused {

void bind(nanobind::module_& m);
void bind_groups(nanobind::module_& m);     // called by bind
void bind_attention(nanobind::module_& m);  // called by bind
void bind_layers(nanobind::module_& m);     // called by bind

// The rows of the op table.
void append_rows(std::vector<OpRow>& rows);

}  // namespace qk::fused
