// Integer groups and int8 rows as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::integers {

void bind(nanobind::module_& m);

}  // namespace qk::integers
