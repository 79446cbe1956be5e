// The emulator against loops that anyone can check, and the kernels' own wrappers under it. Run with the emulator
// preloaded; prints what failed, and exits with 1 if anything did.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <random>
#include <thread>
#include <vector>

namespace wrappers {
#include "simd/tiles.inl"
}

namespace {

using wrappers::TileConfig;
using wrappers::Tiles;

long num_checks = 0, num_failures = 0;

bool check(bool good, const char* what) {
    num_checks++;
    if (!good && num_failures++ < 10) printf("FAILED: %s\n", what);
    return good;
}

std::mt19937 rng(7);

// Memory that ends where nothing is mapped: one byte too many is a fault.
template <class T>
class Guarded {
public:
    explicit Guarded(size_t count) : count_(count) {
        const size_t page = 4096, used = (count * sizeof(T) + page - 1) / page * page;
        size_ = used + page;
        map_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(map_ + used, page, PROT_NONE);
        data_ = reinterpret_cast<T*>(map_ + used - count * sizeof(T));
    }
    ~Guarded() { munmap(map_, size_); }
    T* data() { return data_; }
    T& operator[](size_t i) { return data_[i]; }
    size_t size() const { return count_; }

private:
    char* map_;
    size_t size_, count_;
    T* data_;
};

enum class Signs { ss, su, us, uu };

template <Signs signs>
void dot() {  // tile 0 += tile 1 @ tile 2
    if constexpr (signs == Signs::ss) asm volatile("tdpbssd %%tmm2, %%tmm1, %%tmm0" ::);
    if constexpr (signs == Signs::su) asm volatile("tdpbsud %%tmm2, %%tmm1, %%tmm0" ::);
    if constexpr (signs == Signs::us) asm volatile("tdpbusd %%tmm2, %%tmm1, %%tmm0" ::);
    if constexpr (signs == Signs::uu) asm volatile("tdpbuud %%tmm2, %%tmm1, %%tmm0" ::);
}

template <class A, class B, Signs signs>
void test_int8(int m, int n, int k) {
    Guarded<A> a(static_cast<size_t>(m) * k);
    Guarded<B> b(static_cast<size_t>(k) * n);  // [k / 4][n][4]
    Guarded<int32_t> c(static_cast<size_t>(m) * n);
    for (size_t i = 0; i < a.size(); i++) a[i] = static_cast<A>(rng());
    for (size_t i = 0; i < b.size(); i++) b[i] = static_cast<B>(rng());
    const int32_t start = 0x7fffff00;  // near the end of the range: sums wrap around
    for (size_t i = 0; i < c.size(); i++) c[i] = start;
    TileConfig config;
    config.set(0, m, 4 * n);
    config.set(1, m, k);
    config.set(2, k / 4, 4 * n);
    {
        const Tiles tiles(config);
        wrappers::tile_load<0>(c.data(), 4 * n);
        wrappers::tile_load<1>(a.data(), k);
        wrappers::tile_load<2>(b.data(), 4 * n);
        dot<signs>();
        wrappers::tile_store<0>(c.data(), 4 * n);
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            uint32_t sum = start;
            for (int l = 0; l < k; l++) sum += static_cast<uint32_t>(a[i * k + l] * b[(l / 4 * n + j) * 4 + l % 4]);
            check(c[i * n + j] == static_cast<int32_t>(sum), "int8 product");
        }
}

float of_bf16(uint16_t bits) {
    const uint32_t word = uint32_t{bits} << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

void test_bf16(int m, int n, int k) {
    Guarded<uint16_t> a(static_cast<size_t>(m) * k), b(static_cast<size_t>(k) * n);  // b [k / 2][n][2]
    Guarded<float> c(static_cast<size_t>(m) * n);
    // Exponents of 2^-8 to 2^7, either sign.
    const auto random = [] { return static_cast<uint16_t>((rng() & 1) << 15 | (119 + rng() % 16) << 7 | (rng() & 127)); };
    for (size_t i = 0; i < a.size(); i++) a[i] = random();
    for (size_t i = 0; i < b.size(); i++) b[i] = random();
    TileConfig config;
    config.set(0, m, 4 * n);
    config.set(1, m, 2 * k);
    config.set(2, k / 2, 4 * n);
    {
        const Tiles tiles(config);
        wrappers::tile_zero<0>();
        wrappers::tile_load<1>(a.data(), 2 * k);
        wrappers::tile_load<2>(b.data(), 4 * n);
        wrappers::tile_dot_bf16<0, 1, 2>();
        wrappers::tile_store<0>(c.data(), 4 * n);
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0, magnitude = 0;
            for (int l = 0; l < k; l++) {
                const double term = double{of_bf16(a[i * k + l])} * of_bf16(b[(l / 2 * n + j) * 2 + l % 2]);
                sum += term;
                magnitude += fabs(term);
            }
            // Each product is rounded into at most k / 2 + 2 sums of half an ulp, 2^-24, each.
            check(fabs(c[i * n + j] - sum) <= (k / 2 + 2) * 0x1p-24 * magnitude, "bfloat16 product");
        }
}

// One element: c + a0 * b0 + a1 * b1.
float bf16_element(float c, uint16_t a0, uint16_t a1, uint16_t b0, uint16_t b1) {
    const uint16_t a[2] = {a0, a1}, b[2] = {b0, b1};
    TileConfig config;
    for (int tile = 0; tile < 3; tile++) config.set(tile, 1, 4);
    const Tiles tiles(config);
    wrappers::tile_load<0>(&c, 4);
    wrappers::tile_load<1>(a, 4);
    wrappers::tile_load<2>(b, 4);
    wrappers::tile_dot_bf16<0, 1, 2>();
    wrappers::tile_store<0>(&c, 4);
    return c;
}

void test_bf16_specials() {
    const uint16_t one = 0x3f80, infinity = 0x7f80, subnormal = 0x0001, smallest_normal = 0x0080, half = 0x3f00;
    check(bf16_element(1, infinity, 0, one, one) == INFINITY, "infinity is kept");
    check(std::isnan(bf16_element(1, infinity, 0, 0, one)), "infinity times 0 is NaN");
    check(bf16_element(0, subnormal, 0, one, 0) == 0, "a subnormal factor counts as 0");
    check(bf16_element(0x1p-130f, 0, 0, 0, 0) == 0, "a subnormal sum counts as 0");
    check(bf16_element(0, smallest_normal, 0, half, 0) == 0, "a subnormal result becomes 0");
    check(bf16_element(0, smallest_normal, 0, one, 0) == 0x1p-126f, "the smallest normal number is kept");
    // Even and odd products meet before the sum does: 2^-24 twice is half an ulp of 1 above it only together.
    const uint16_t tiny = 0x3380;  // 2^-24
    check(bf16_element(1, tiny, tiny, one, one) == 1 + 0x1p-23f, "products are added to each other first");
}

struct Shape {
    int rows, bytes;
};

// Tile i has the i-th shape.
void configure(std::initializer_list<Shape> shapes) {
    TileConfig config;
    int tile = 0;
    for (const auto& shape : shapes) config.set(tile++, shape.rows, shape.bytes);
    wrappers::tile_configure(config);
}

// Buffers that nothing but a tile instruction reads, and nothing afterwards: they must be filled all the same.
__attribute__((noinline)) void configure_from_local_buffer(int rows) {
    TileConfig config;
    for (int tile = 0; tile < 8; tile++) config.set(tile, rows, 64);
    wrappers::tile_configure(config);
}

__attribute__((noinline)) void load_from_local_buffer(const int8_t* values) {
    int8_t reversed[64];
    for (int i = 0; i < 64; i++) reversed[i] = values[63 - i];
    wrappers::tile_load<7>(reversed, 64);
}

void test_wrappers_keep_local_stores() {
    int8_t values[64], got[64];
    for (auto& value : values) value = static_cast<int8_t>(rng());
    configure_from_local_buffer(1);
    load_from_local_buffer(values);
    wrappers::tile_store<7>(got, 64);
    wrappers::tile_release();
    check(std::equal(got, got + 64, std::make_reverse_iterator(values + 64)), "stores into a local buffer survive");
}

void test_config_round_trip() {
    TileConfig config, got;
    config.set(0, 16, 64);
    config.set(5, 3, 8);
    wrappers::tile_configure(config);
    asm volatile("sttilecfg %0" : "=m"(got));
    wrappers::tile_release();
    check(memcmp(&config, &got, sizeof config) == 0, "the configuration comes back");
    asm volatile("sttilecfg %0" : "=m"(got));
    const char zeros[64] = {};
    check(memcmp(&got, zeros, sizeof got) == 0, "after tilerelease the configuration is all zeros");
}

// The signal that ends a child which does this; 0 where it lives.
template <class Action>
int signal_of(const Action& action) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        action();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

void test_faults() {
    check(signal_of([] { configure({{16, 68}}); }) == SIGSEGV, "68 bytes a row");
    check(signal_of([] { configure({{17, 64}}); }) == SIGSEGV, "17 rows");
    check(signal_of([] { configure({{0, 64}}); }) == SIGSEGV, "columns without rows");
    check(signal_of([] { wrappers::tile_zero<0>(); }) == SIGILL, "a tile that is not configured");
    check(signal_of([] {
              configure({{16, 64}, {16, 64}});
              asm volatile(".byte 0xc4, 0xe2, 0x73, 0x5e, 0xc1" ::);  // tdpbssd tmm0, tmm1, tmm1: no assembler takes it
          }) == SIGILL, "the same tile twice");
    check(signal_of([] {
              configure({{16, 64}, {16, 32}, {16, 64}});
              dot<Signs::ss>();
          }) == SIGILL, "sources of different k");
    check(signal_of([] {
              configure({{8, 64}, {16, 64}, {16, 64}});
              dot<Signs::ss>();
          }) == SIGILL, "destination of other rows");
    check(signal_of([] {
              configure({{16, 64}, {16, 32}, {8, 64}});
              dot<Signs::ss>();
          }) == 0, "k of 32 is legal");
    check(signal_of([] { asm volatile("ud2"); }) == SIGILL, "any other illegal instruction still ends the program");
    check(signal_of([] {
              configure({{16, 64}});
              Guarded<char> memory(16 * 64 - 1);
              wrappers::tile_load<0>(memory.data(), 64);
          }) == SIGSEGV, "a load one byte over the end");
}

void test_addressing() {
    int8_t memory[512];
    for (auto& byte : memory) byte = static_cast<int8_t>(rng());
    int8_t got[4][8];
    configure({{4, 8}});
    // Scale, displacement of 8 and of 32 bits, no index, and registers from r8 on, which need their own prefix bits.
    const auto expect = [&](const int8_t* first, int64_t stride, const char* what) {
        wrappers::tile_store<0>(got, 8);
        bool good = true;
        for (int row = 0; row < 4; row++) good &= memcmp(got[row], first + row * stride, 8) == 0;
        check(good, what);
    };
    const int64_t eight = 8;
    asm volatile("tileloadd 16(%0,%1,4), %%tmm0" ::"r"(memory), "r"(eight) : "memory");
    expect(memory + 16, 32, "scale and short displacement");
    asm volatile("tileloadd 256(%0,%1,2), %%tmm0" ::"r"(memory), "r"(eight) : "memory");
    expect(memory + 256, 16, "long displacement");
    asm volatile("tileloadd (%0), %%tmm0" ::"r"(memory) : "memory");
    expect(memory, 0, "no index: every row the same");
    asm volatile("mov %0, %%r12\n\tmov %1, %%r13\n\ttileloaddt1 (%%r12,%%r13,1), %%tmm0"
                 ::"r"(memory), "r"(eight) : "memory", "r12", "r13");
    expect(memory, 8, "r12 and r13");
    asm volatile("mov %0, %%r13\n\tmov %1, %%r9\n\ttileloadd (%%r13,%%r9,8), %%tmm0"
                 ::"r"(memory), "r"(eight) : "memory", "r9", "r13");
    expect(memory, 64, "r13 as base, which takes a displacement");
    wrappers::tile_release();
}

void test_threads_have_tiles_of_their_own() {
    constexpr int num_threads = 4;
    bool good[num_threads] = {};
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; t++)
        threads.emplace_back([&good, t] {
            good[t] = true;
            for (int round = 0; round < 50; round++) {
                configure({{16, 64}});
                int8_t values[16 * 64], got[16 * 64];
                memset(values, 50 * t + round, sizeof values);
                wrappers::tile_load<0>(values, 64);
                std::this_thread::yield();
                wrappers::tile_store<0>(got, 64);
                good[t] &= memcmp(values, got, sizeof got) == 0;
            }
        });
    for (auto& thread : threads) thread.join();
    for (const bool one : good) check(one, "a thread's tiles");
}

}  // namespace

int main() {
    for (int m = 1; m <= 16; m += 3)
        for (int n = 1; n <= 16; n += 3)
            for (const int k : {4, 12, 32, 60, 64}) {
                test_int8<int8_t, int8_t, Signs::ss>(m, n, k);
                test_int8<int8_t, uint8_t, Signs::su>(m, n, k);
                test_int8<uint8_t, int8_t, Signs::us>(m, n, k);
                test_int8<uint8_t, uint8_t, Signs::uu>(m, n, k);
                test_bf16(m, n, k / 2);
            }
    test_bf16_specials();
    test_wrappers_keep_local_stores();
    test_config_round_trip();
    test_addressing();
    test_threads_have_tiles_of_their_own();
    test_faults();
    printf("%ld checks, %ld failures\n", num_checks, num_failures);
    return num_failures != 0;
}
