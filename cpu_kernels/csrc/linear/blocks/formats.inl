// Every format as block.h declares it. Included inside the namespace of an instruction set.

#define QK_LINEAR
#include "block_formats/all.inl"
#undef QK_LINEAR
QK_PRODUCTS(w2, Group<2>)
QK_PRODUCTS(w3, Group<3>)
QK_PRODUCTS(w4, Group<4>)
QK_PRODUCTS(w8, Group<8>)
QK_PRODUCTS(w2_asym, AsymmetricGroup<2>)
QK_PRODUCTS(w3_asym, AsymmetricGroup<3>)
QK_PRODUCTS(w4_asym, AsymmetricGroup<4>)
QK_PRODUCTS(w8_asym, AsymmetricGroup<8>)
