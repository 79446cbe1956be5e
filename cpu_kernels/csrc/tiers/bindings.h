// Blocks of a KV cache on a disk as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include "tiers/chosen_blocks.h"

namespace qk::tiers {

void bind(nanobind::module_& m);

// For bindings that take a ChosenBlocks; throws nb::type_error.
ChosenBlocks& chosen_blocks_of(nanobind::handle given);

}  // namespace qk::tiers
