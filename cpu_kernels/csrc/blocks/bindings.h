// Scores of blocks as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::blocks { void bind(nanobind::module_& m); }  // namespace qk::blocks
