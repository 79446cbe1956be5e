// The effects of vpdpbusd and its kin of AVX-VNNI-INT8 on the vector registers that a signal handler finds saved.
// source: Intel Software Developer's Manual, volume 2, the "Operation" section of each; volume 1, chapter 13 (XSAVE)
#pragma once

#include <cstddef>
#include <cstdint>

#include "tiles.h"

namespace amx {

// Vector registers 0 to 15 of the interrupted code, as XSAVE left them in the frame of its signal.
class Vectors {
public:
    // frame: uc_mcontext.fpregs
    explicit Vectors(void* frame);

    // The frame has AVX's registers.
    bool are_saved() const { return high_; }

    // Lane of 4 bytes i: destination[i] += a[4 i + j] * b[4 i + j] over j. Bits above are cleared.
    void add_dots(Op op, unsigned destination, unsigned a, const uint8_t* b, int num_bytes);

    // [32] bytes
    void read(unsigned index, uint8_t* to) const;

private:
    template <class A, class B>
    void add(unsigned destination, unsigned a, const uint8_t* b, int num_bytes);

    // The saved registers of a part of XSAVE's state; zeroed if it says that they are in their first state.
    uint8_t* part(int feature, size_t offset, size_t num_bytes);

    uint8_t* state_;
    uint8_t* low_ = nullptr;    // [16, 16] bytes 0 to 15
    uint8_t* high_ = nullptr;   // [16, 16] bytes 16 to 31
    uint8_t* above_ = nullptr;  // [16, 32] bytes 32 to 63; null if the processor lacks them, or all are 0
};

}  // namespace amx
