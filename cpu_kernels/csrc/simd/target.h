// Intrinsics, and the two macros around code that is compiled for more instructions than the rest.
#pragma once

#include <immintrin.h>

#include "simd/headers.h"

// *.inl look for this name, as they cannot include headers themselves.
#define QK_INTRINSICS

// `names` is a string of instruction sets. Clang has no pragma that switches them: it gives each function an attribute.
#define QK_PRAGMA(...) _Pragma(#__VA_ARGS__)
#ifdef __clang__
#define QK_OPEN_TARGET(names) QK_PRAGMA(clang attribute push(__attribute__((target(names))), apply_to = function))
#define QK_CLOSE_TARGET QK_PRAGMA(clang attribute pop)
#else
#define QK_OPEN_TARGET(names)   \
    QK_PRAGMA(GCC push_options) \
    QK_PRAGMA(GCC target(names))
#define QK_CLOSE_TARGET QK_PRAGMA(GCC pop_options)
#endif
