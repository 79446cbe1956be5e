#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "dispatch.h"

namespace qk::linear {

void bind(nanobind::module_& m);

// The rows of the op table.
void append_rows(std::vector<OpRow>& rows);

}  // namespace qk::linear
