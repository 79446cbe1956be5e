#pragma once

#include <nanobind/nanobind.h>

namespace qk::moe { void bind(nanobind::module_& m); }  // namespace qk::moe
