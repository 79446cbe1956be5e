// The formats' readers and what is done with them, of one instruction set. Included inside its namespace, after lanes.

#include "linear/formats/planes.inl"
#include "linear/formats/one_scale.inl"
#include "linear/formats/q4_k.inl"
#include "linear/accumulate.inl"
#include "linear/direct.inl"
#include "linear/unpack.inl"
