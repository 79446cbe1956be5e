// Every encoder over the lanes of an instruction set.
#ifndef QK_SIMD_HALF
#error "encode/kernels.inl: include simd/lanes_*.inl before this file"
#endif

namespace {
#include "encode/driver.inl"
#include "encode/words.inl"
#include "encode/affine/kernels.inl"
#include "encode/linear/kernels.inl"
}  // namespace
#define QK_ENCODE
#include "block_formats/all.inl"
