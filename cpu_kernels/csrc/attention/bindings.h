// Attention as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::attention {

void bind(nanobind::module_& m);

}  // namespace qk::attention
