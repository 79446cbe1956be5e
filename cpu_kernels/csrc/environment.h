// The variables of the environment that choose implementations, as one number.
#pragma once

#include <cstdint>

namespace qk {

// Another number than before if one of the variables has another value since the last call. A search for each
// of the variables, so a decode step asks once. Call it when nothing writes the environment (with the GIL held).
int64_t environment_version();

}  // namespace qk
