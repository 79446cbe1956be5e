// Codes as blocks store them, to a byte each: common code of the layouts' stored_codes.
#pragma once

#include <cstdint>

namespace qk::layout {

inline void low_high_nibbles(const uint8_t* from, int count, uint8_t* q) {
    for (int j = 0; j < count; j++) {
        q[j] = from[j] & 15;
        q[j + count] = from[j] >> 4;
    }
}

// Bit j of `from` above the code's `at` lower ones.
inline void add_bits(const uint8_t* from, int at, uint8_t* q) {
    for (int j = 0; j < 32; j++) q[j] |= (from[j / 8] >> j % 8 & 1) << at;
}

// Runs of 32 codes that share bytes: byte j has two bits of code j of each of four runs.
inline void two_bits_of_runs(const uint8_t* from, uint8_t* q) {
    for (int run = 0; run < 4; run++)
        for (int j = 0; j < 32; j++) q[32 * run + j] = from[j] >> 2 * run & 3;
}

// Byte j has one bit of code j of each of eight runs of 32.
inline void add_bits_of_runs(const uint8_t* from, int at, uint8_t* q) {
    for (int run = 0; run < 8; run++)
        for (int j = 0; j < 32; j++) q[32 * run + j] |= (from[j] >> run & 1) << at;
}

}  // namespace qk::layout
