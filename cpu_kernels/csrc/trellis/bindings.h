// The trellis code as Python sees it.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::trellis { void bind(nanobind::module_& m); }  // namespace qk::trellis
