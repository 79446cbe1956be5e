// The decoders as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::decode { void bind(nanobind::module_& m); }  // namespace qk::decode
