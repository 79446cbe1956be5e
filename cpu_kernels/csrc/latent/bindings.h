// The up-projections of latent attention as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace qk::latent {

void bind(nanobind::module_& m);

}  // namespace qk::latent
