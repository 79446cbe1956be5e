// GPTQ's factor and feedback as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::gptq { void bind(nanobind::module_& m); }  // namespace qk::gptq
