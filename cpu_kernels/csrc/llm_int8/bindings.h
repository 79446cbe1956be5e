#pragma once

#include <nanobind/nanobind.h>

namespace qk::llm_int8 { void bind(nanobind::module_& m); }  // namespace qk::llm_int8
