// The affine algorithms of one instruction set. Included inside its namespace, after words.inl.

#include "encode/affine/fit.inl"
#include "encode/affine/half_affine.inl"
#include "encode/affine/k_affine.inl"
#include "encode/affine/k_scales.inl"
