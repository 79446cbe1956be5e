// The formats' readers and what is done with them, of one instruction set. Included inside its namespace, after lanes.

#include "linear/formats/planes.inl"
#include "linear/formats/small_blocks.inl"
#include "linear/formats/k_scales.inl"
#include "linear/formats/k_halves.inl"
#include "linear/formats/iq4.inl"
#include "linear/formats/groups.inl"
#include "linear/accumulate.inl"
#include "linear/direct.inl"
#include "linear/unpack.inl"
