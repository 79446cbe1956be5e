#pragma once

#include <nanobind/nanobind.h>

namespace qk::link { void bind(nanobind::module_& m); }  // namespace qk::link
