// The encoders as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::encode { void bind(nanobind::module_& m); }  // namespace qk::encode
