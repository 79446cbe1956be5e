// Tile instructions of AMX. Include it inside a namespace, after <cstdint>.
//
// Own wrappers rather than the compiler's intrinsics: those of gcc 12 name no memory that they read (a tile load) or
// too little of it (8 of the 64 bytes of a configuration), so that from -O1 on it deletes the stores that fill a local
// buffer which nothing but a tile load reads. Here every instruction that reads or writes memory says so.
#ifndef INT64_MAX
#error "simd/tiles.inl: include <cstdint> before this file"
#endif

// The input of ldtilecfg: rows of each of the 8 tiles, and bytes per row.
struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved0[14] = {};
    uint16_t row_bytes[8] = {};
    uint8_t reserved1[16] = {};
    uint8_t rows[8] = {}, reserved2[8] = {};

    void set(int tile, int64_t num_rows, int64_t num_bytes) {
        rows[tile] = static_cast<uint8_t>(num_rows);
        row_bytes[tile] = static_cast<uint16_t>(num_bytes);
    }
};
static_assert(sizeof(TileConfig) == 64);

inline void tile_configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
inline void tile_release() { asm volatile("tilerelease" ::: "memory"); }

// The tiles of a thread while it lives; in between they are empty, which spares the system 8 KiB a context switch.
class Tiles {
public:
    explicit Tiles(const TileConfig& config) { tile_configure(config); }
    ~Tiles() { tile_release(); }
    Tiles(const Tiles&) = delete;
};

template <int tile>
inline void tile_zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}

// stride: bytes from row to row, in memory
template <int tile>
inline void tile_load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}

// The same for data that is not read again soon: it passes the L1 by.
template <int tile>
inline void tile_load_once(const void* from, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}

template <int tile>
inline void tile_store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}

// sums += a @ b: int8 a, uint8 b, int32 sums. b has 4 successive k of a column side by side.
template <int sums, int a, int b>
inline void tile_dot_int8_uint8() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
}

// sums += a @ b: int8 a and b, int32 sums. b as above.
template <int sums, int a, int b>
inline void tile_dot_int8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
}

// sums += a @ b: bfloat16 a and b, float32 sums. b has 2 successive k of a column side by side.
template <int sums, int a, int b>
inline void tile_dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
}
