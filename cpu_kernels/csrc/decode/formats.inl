// The decoders as decode.h declares them. Included inside the namespace of an instruction set.

Isa q4_0(const Job& job, int64_t begin, int64_t end) { return decode_blocks<OneScale<4>>(job, begin, end); }
Isa q4_1(const Job& job, int64_t begin, int64_t end) { return decode_blocks<ScaleAndMinimum<4>>(job, begin, end); }
Isa q5_0(const Job& job, int64_t begin, int64_t end) { return decode_blocks<OneScale<5>>(job, begin, end); }
Isa q5_1(const Job& job, int64_t begin, int64_t end) { return decode_blocks<ScaleAndMinimum<5>>(job, begin, end); }
Isa q8_0(const Job& job, int64_t begin, int64_t end) { return decode_blocks<Q8_0>(job, begin, end); }
Isa q2_k(const Job& job, int64_t begin, int64_t end) { return decode_blocks<Q2_K>(job, begin, end); }
Isa q3_k(const Job& job, int64_t begin, int64_t end) { return decode_blocks<Q3_K>(job, begin, end); }
Isa q4_k(const Job& job, int64_t begin, int64_t end) { return decode_blocks<KScales<4>>(job, begin, end); }
Isa q5_k(const Job& job, int64_t begin, int64_t end) { return decode_blocks<KScales<5>>(job, begin, end); }
Isa q6_k(const Job& job, int64_t begin, int64_t end) { return decode_blocks<Q6_K>(job, begin, end); }
Isa iq4_nl(const Job& job, int64_t begin, int64_t end) { return decode_blocks<IQ4_NL>(job, begin, end); }
Isa iq4_xs(const Job& job, int64_t begin, int64_t end) { return decode_blocks<IQ4_XS>(job, begin, end); }
