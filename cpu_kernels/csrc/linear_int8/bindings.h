#pragma once

#include <cstdint>

#include "checks.h"

namespace qk::linear { struct Maker; }

namespace qk::linear_int8 {

extern const linear::Maker int8_maker;  // W8A8

// int8 [N, K], and no more K than sums can take.
void require_codes(const Array& weight, int64_t num_rows, int64_t row_size);

}  // namespace qk::linear_int8
