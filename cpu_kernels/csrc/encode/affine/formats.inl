// The affine formats as encode.h declares them. Included inside the namespace of an instruction set.

Isa q4_1(const Job& job, int64_t begin, int64_t end) { return encode_blocks<HalfAffine<4>>(job, begin, end); }
Isa q5_1(const Job& job, int64_t begin, int64_t end) { return encode_blocks<HalfAffine<5>>(job, begin, end); }
Isa q2_k(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Q2K>(job, begin, end); }
Isa q4_k(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Q45K<4>>(job, begin, end); }
Isa q5_k(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Q45K<5>>(job, begin, end); }
