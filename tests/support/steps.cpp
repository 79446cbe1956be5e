// Counts how often one thread executes each instruction within a range of addresses: with the trap flag set, each raises
// a signal. Counts do not depend on the load of the machine or on counters that a virtual machine may lack.
#include <signal.h>
#include <ucontext.h>

#include <cstdint>

namespace {

constexpr uint64_t trap_flag = 0x100;
uint64_t first, last;
uint32_t* hits;  // one per byte of the range

void on_step(int, siginfo_t*, void* context) {
    const auto at = static_cast<uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    if (at >= first && at < last) hits[at - first]++;
}

}  // namespace

extern "C" void start_counting(uint64_t begin, uint64_t end, uint32_t* counts) {
    first = begin, last = end, hits = counts;
    struct sigaction action = {};
    action.sa_sigaction = on_step;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, nullptr);
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | trap_flag);
}

extern "C" void stop_counting() {
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~trap_flag);
    signal(SIGTRAP, SIG_DFL);
}
