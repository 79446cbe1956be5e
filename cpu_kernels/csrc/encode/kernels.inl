// Every encoder over the lanes of an instruction set.
#ifndef QK_SIMD_HALF
#error "encode/kernels.inl: include simd/lanes_*.inl before this file"
#endif

namespace {
#include "encode/driver.inl"
#include "encode/words.inl"
#include "encode/affine/fit.inl"
#include "encode/affine/half_affine.inl"
#include "encode/affine/k_affine.inl"
#include "encode/affine/k_scales.inl"
#include "encode/linear/levels.inl"
#include "encode/linear/linear_fit.inl"
#include "encode/linear/k_linear.inl"
#include "encode/linear/one_scale.inl"
}  // namespace
#define QK_ENCODE
#include "block_formats/all.inl"
