// The affine formats as encode.h declares them. Included inside the namespace of an instruction set.

Isa q4_1(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Affine32<4>>(job, begin, end); }
Isa q5_1(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Affine32<5>>(job, begin, end); }
