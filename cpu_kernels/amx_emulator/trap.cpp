// A program's tile instructions, and its dots of AVX-VNNI, executed on a processor without them: each is an
// illegal instruction there, whose signal handler reads it, applies it to tile registers in memory or to the saved vector
// registers, and goes on after it. All else, AVX-512 included, runs as it is. Preloaded (LD_PRELOAD) it serves any
// program, a Python extension among them.
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "decode.h"
#include "dots.h"
#include "tiles.h"

namespace amx {
namespace {

// initial-exec: reached without a call that may allocate, which a signal handler must not.
thread_local Tiles tiles __attribute__((tls_model("initial-exec")));

std::atomic<uint64_t> counts[num_ops];  // of all threads
struct sigaction previous;

Outcome execute_dot(const Instruction& it, Vectors& vectors) {
    if (!vectors.are_saved()) return {Fault::undefined_opcode, "no vector registers in the frame of the signal"};
    uint8_t b[32];
    if (it.address)
        memcpy(b, reinterpret_cast<const void*>(it.address), static_cast<size_t>(it.num_bytes));
    else
        vectors.read(it.b, b);
    vectors.add_dots(it.op, it.tile, it.a, b, it.num_bytes);
    return {};
}

Outcome execute(const Instruction& it, Vectors& vectors) {
    if (it.illegal) return {Fault::undefined_opcode, it.illegal};
    counts[static_cast<int>(it.op)].fetch_add(1, std::memory_order_relaxed);
    if (is_dot(it.op)) return execute_dot(it, vectors);
    auto* memory = reinterpret_cast<uint8_t*>(it.address);
    switch (it.op) {
        case Op::ldtilecfg: return tiles.configure(memory);
        case Op::sttilecfg: return tiles.store_config(memory);
        case Op::tilerelease: return tiles.release();
        case Op::tilezero: return tiles.zero(it.tile);
        case Op::tileloadd:
        case Op::tileloaddt1: return tiles.load(it.tile, memory, it.stride);
        case Op::tilestored: return tiles.store(it.tile, memory, it.stride);
        default: return tiles.multiply(it.op, it.tile, it.a, it.b);
    }
}

[[noreturn]] void die(const Outcome& outcome, const uint8_t* code) {
    char text[160];
    const int size = snprintf(text, sizeof text, "amx emulator: %s, at %p\n", outcome.reason, (const void*)code);
    if (write(STDERR_FILENO, text, static_cast<size_t>(size)) != size) _exit(98);
    const int signal_number = outcome.fault == Fault::undefined_opcode ? SIGILL : SIGSEGV;
    signal(signal_number, SIG_DFL);
    sigset_t unblocked;
    sigemptyset(&unblocked);
    sigaddset(&unblocked, signal_number);
    sigprocmask(SIG_UNBLOCK, &unblocked, nullptr);
    raise(signal_number);
    _exit(99);
}

// An illegal instruction that is none of ours belongs to whoever had the signal before.
void pass_on(int signal_number, siginfo_t* info, void* context) {
    if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal_number, info, context);
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal_number);
    sigaction(SIGILL, &previous, nullptr);  // the instruction runs once more, and ends the program where it is
}

void on_illegal_instruction(int signal_number, siginfo_t* info, void* context) {
    static constexpr int saved_at[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                         REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    mcontext_t& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
    greg_t* saved = machine.gregs;
    Vectors vectors(machine.fpregs);
    uint64_t registers[16];
    for (int i = 0; i < 16; i++) registers[i] = static_cast<uint64_t>(saved[saved_at[i]]);

    const auto* const first = reinterpret_cast<const uint8_t*>(saved[REG_RIP]);
    const uint8_t* code = first;
    Instruction instruction;
    while (decode(code, registers, instruction)) {  // those that follow at once as well: a trap costs more than they
        const Outcome outcome = execute(instruction, vectors);
        if (outcome.fault != Fault::none) die(outcome, code);
        code += instruction.length;
    }
    if (code == first) return pass_on(signal_number, info, context);
    saved[REG_RIP] = reinterpret_cast<greg_t>(code);
}

__attribute__((constructor)) void install() {
    struct sigaction action = {};
    action.sa_sigaction = on_illegal_instruction;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;  // NODEFER: a bad address within is a fault of its own
    sigaction(SIGILL, &action, &previous);
}

}  // namespace
}  // namespace amx

// The kernels ask for this symbol. If it is there, tile instructions and dots are executed, if not by the processor.
// Tests build an emulator that returns 2: it also executes dots that the processor has.
extern "C" int qbench_amx_emulator() { return 1; }

// Instructions executed so far, in the order of amx::Op.
extern "C" void qbench_amx_counts(uint64_t* out) {
    for (int i = 0; i < amx::num_ops; i++) out[i] = amx::counts[i].load(std::memory_order_relaxed);
}
