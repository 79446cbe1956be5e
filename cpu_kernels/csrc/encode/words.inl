// Codes into words: lane by lane the bit operations of quant/formats/bits.py.

// Bytes b0..b3, each below 256, as one little-endian word.
inline Int word_of_bytes(Int b0, Int b1, Int b2, Int b3) { return b0 | b1 << 8 | b2 << 16 | b3 << 24; }

// 32 codes below 16 -> 4 words: the first half in the low nibbles, the second in the high ones.
inline void pack_nibbles(const Int* q, Int* words) {
    for (int i = 0; i < 4; i++, q += 4, words++)
        *words = word_of_bytes(q[0], q[1], q[2], q[3]) | word_of_bytes(q[16], q[17], q[18], q[19]) << 4;
}

// 32 codes -> bit `bit` of each, code i as bit i of a word.
inline Int pack_bits(const Int* q, int bit) {
    Int word = splat_int(0);
    for (int i = 0; i < 32; i++) word = word | (q[i] >> bit & splat_int(1)) << i;
    return word;
}
