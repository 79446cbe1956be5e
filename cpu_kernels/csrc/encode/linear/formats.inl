// The formats without minima as encode.h declares them. Included inside the namespace of an instruction set.

Isa q8_0(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Q8_0>(job, begin, end); }
Isa q4_0(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Q4_0>(job, begin, end); }
Isa q5_0(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Q5_0>(job, begin, end); }
Isa q6_k(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Q6_K>(job, begin, end); }
Isa q3_k(const Job& job, int64_t begin, int64_t end) { return encode_blocks<Q3_K>(job, begin, end); }
Isa iq4_nl(const Job& job, int64_t begin, int64_t end) { return encode_blocks<IQ4_NL>(job, begin, end); }
Isa iq4_xs(const Job& job, int64_t begin, int64_t end) { return encode_blocks<IQ4_XS>(job, begin, end); }
