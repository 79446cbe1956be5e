// The headers that *.inl use, which cannot include them: a target region is open by then, and no header code may be
// compiled for the region's instruction set. Files for AVX2 and AVX-512 include target.h instead.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "half.h"

// *.inl look for this name.
#define QK_SIMD_HEADERS
