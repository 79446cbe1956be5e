// The up-projections of latent attention as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::mla { void bind(nanobind::module_& m); }  // namespace qk::mla
