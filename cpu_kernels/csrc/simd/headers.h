// The headers that simd/*.inl use. Include this file before a target region opens, so that no header code is compiled
// for the region's instruction set. Files for AVX2 and AVX-512 include target.h instead.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

// simd/*.inl look for this name, as they cannot include headers themselves.
#define QK_SIMD_HEADERS
