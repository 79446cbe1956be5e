// The affine algorithms of one instruction set. Included inside its namespace, after driver.inl.

#include "encode/words.inl"
#include "encode/affine/q4_1.inl"
