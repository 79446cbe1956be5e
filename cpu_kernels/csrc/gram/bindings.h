// Gram matrices as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::gram { void bind(nanobind::module_& m); }  // namespace qk::gram
