// vpdpbusd and its kin under the emulator against loops that anyone can check: every register, memory operands, both
// sizes. Run with the emulator preloaded; prints the failures, and exits with 1 if anything did.
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

extern "C" __attribute__((weak)) int qbench_amx_emulator();

namespace {

long num_checks = 0, num_failures = 0;
std::mt19937 rng(7);

void check(bool good, const char* what) {
    num_checks++;
    if (!good && num_failures++ < 10) printf("FAILED: %s\n", what);
}

struct Vector {
    uint8_t bytes[32];
    bool operator==(const Vector& other) const { return memcmp(bytes, other.bytes, sizeof bytes) == 0; }
};

Vector random_vector() {
    Vector v;
    for (auto& byte : v.bytes) byte = static_cast<uint8_t>(rng());
    return v;
}

// Prefixes of the four instructions: nothing, 66, f3, f2
constexpr unsigned uu = 0, us = 1, su = 2, ss = 3;

int factor(uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : byte; }

Vector expected(unsigned signs, Vector sum, const Vector& a, const Vector& b, int num_bytes) {
    const bool signed_a = signs == su || signs == ss, signed_b = signs == us || signs == ss;
    for (int lane = 0; lane < num_bytes; lane += 4) {
        uint32_t value;
        memcpy(&value, sum.bytes + lane, 4);
        for (int j = lane; j < lane + 4; j++)
            value += static_cast<uint32_t>(factor(a.bytes[j], signed_a) * factor(b.bytes[j], signed_b));
        memcpy(sum.bytes + lane, &value, 4);
    }
    memset(sum.bytes + num_bytes, 0, sizeof sum.bytes - static_cast<size_t>(num_bytes));
    return sum;
}

constexpr uint8_t modrm(unsigned mod, unsigned reg, unsigned rm) {
    return static_cast<uint8_t>(mod << 6 | (reg & 7) << 3 | (rm & 7));
}
constexpr unsigned rdx = 2, rsi = 6, rdi = 7, in_register = 3, short_displacement = 1, no_displacement = 0;

// A function of three addresses, of the sum, a and b, made while the program runs.
class Code {
public:
    Code() : page_(static_cast<uint8_t*>(mmap(nullptr, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
    ~Code() { munmap(page_, 4096); }

    void move(unsigned opcode, unsigned reg, unsigned address) {  // vmovdqu
        vex(0xc4, reg, address, 1, 0, true, 2, opcode);
        bytes_.push_back(modrm(no_displacement, reg, address));
    }
    void dot(unsigned signs, unsigned sum, unsigned a, unsigned b, bool wide, bool b_in_memory) {
        // Its first byte traps if the emulator is built to execute dots of the processor, too.
        const bool always = &qbench_amx_emulator && qbench_amx_emulator() == 2;
        vex(always ? 0x06 : 0xc4, sum, b_in_memory ? rdx : b, 2, a, wide, signs, 0x50);
        bytes_.push_back(modrm(b_in_memory ? short_displacement : in_register, sum, b_in_memory ? rdx : b));
        if (b_in_memory) bytes_.push_back(32);
    }
    void run(Vector* sum, const Vector* a, const Vector* b) {
        bytes_.push_back(0xc3);
        memcpy(page_, bytes_.data(), bytes_.size());
        reinterpret_cast<void (*)(Vector*, const Vector*, const Vector*)>(page_)(sum, a, b);
    }

private:
    void vex(unsigned first, unsigned reg, unsigned rm, unsigned map, unsigned v, bool wide, unsigned prefix,
             unsigned opcode) {
        const unsigned inverted = (reg < 8) << 7 | 1 << 6 | (rm < 8) << 5;
        for (const unsigned byte : {first, inverted | map, (~v & 15) << 3 | wide << 2 | prefix, opcode})
            bytes_.push_back(static_cast<uint8_t>(byte));
    }
    uint8_t* page_;
    std::vector<uint8_t> bytes_;
};

void test_dot(unsigned signs, unsigned sum, unsigned a, unsigned b, bool wide, bool b_in_memory) {
    const Vector start = random_vector(), of_a = random_vector(), of_b[2] = {random_vector(), random_vector()};
    Code code;
    code.move(0x6f, sum, rdi);
    code.move(0x6f, a, rsi);
    code.move(0x6f, b, rdx);
    code.dot(signs, sum, a, b, wide, b_in_memory);
    code.move(0x7f, sum, rdi);
    Vector got = start;
    code.run(&got, &of_a, of_b);
    Vector registers[16];  // a later load into the same register counts
    registers[sum] = start, registers[a] = of_a, registers[b] = of_b[0];
    check(got == expected(signs, registers[sum], registers[a], b_in_memory ? of_b[1] : registers[b], wide ? 32 : 16),
          b_in_memory ? "a dot with memory" : "a dot of registers");
}

void test_extremes(unsigned signs) {
    for (const int byte_a : {0, 127, 128, 255})
        for (const int byte_b : {0, 127, 128, 255}) {
            Vector sum, a, b[1];
            memset(&sum, 0x7f, sizeof sum);  // near the end of the range: sums wrap around
            memset(&a, byte_a, sizeof a);
            memset(b, byte_b, sizeof *b);
            Vector got = sum;
            Code code;
            code.move(0x6f, 0, rdi);
            code.move(0x6f, 1, rsi);
            code.move(0x6f, 2, rdx);
            code.dot(signs, 0, 1, 2, true, false);
            code.move(0x7f, 0, rdi);
            code.run(&got, &a, b);
            check(got == expected(signs, sum, a, b[0], 32), "a dot of extremes");
        }
}

// Bits 256 to 511 of the destination are cleared, those of another register are not.
__attribute__((target("avx512f"))) void test_bits_above() {
    uint64_t own[8], other[8];
    asm volatile(
        "vpternlogd $255, %%zmm3, %%zmm3, %%zmm3\n\tvpternlogd $255, %%zmm4, %%zmm4, %%zmm4\n\t"
        ".byte 0xc4, 0xe2, 0x5f, 0x50, 0xdc\n\t"  // vpdpbssd ymm3, ymm4, ymm4
        "vmovdqu64 %%zmm3, %0\n\tvmovdqu64 %%zmm4, %1"
        : "=m"(own), "=m"(other)::"xmm3", "xmm4");
    check(own[3] != 0 && own[4] == 0 && own[7] == 0, "bits above a result");
    check(other[4] == ~uint64_t{0} && other[7] == ~uint64_t{0}, "bits above another register");
}

}  // namespace

int main() {
    for (const unsigned signs : {uu, us, su, ss}) {
        for (unsigned sum = 0; sum < 16; sum++)
            for (unsigned a = 0; a < 16; a++)
                for (unsigned b = 0; b < 16; b++) test_dot(signs, sum, a, b, (sum + a + b) % 2, b % 5 == 4);
        test_extremes(signs);
    }
    if (__builtin_cpu_supports("avx512f")) test_bits_above();
    printf("%ld checks, %ld failures\n", num_checks, num_failures);
    return num_failures != 0;
}
