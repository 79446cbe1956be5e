// Integer groups and int8 rows as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::group_quant { void bind(nanobind::module_& m); }  // namespace qk::group_quant
