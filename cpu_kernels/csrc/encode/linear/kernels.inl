// The algorithms of formats without minima, of one instruction set. Included inside its namespace, after words.inl.

#include "encode/linear/levels.inl"
#include "encode/linear/linear_fit.inl"
#include "encode/linear/k_linear.inl"
#include "encode/linear/one_scale.inl"
#include "encode/linear/iq4.inl"
