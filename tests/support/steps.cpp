// Counts the instructions that one thread executes within a range of addresses: with the trap flag set, each raises a
// signal. Counts do not depend on the load of the machine or on counters that a virtual machine may lack.
#include <signal.h>
#include <ucontext.h>

#include <cstdint>

namespace {

constexpr uint64_t trap_flag = 0x100;
uint64_t first, last, count;

void on_step(int, siginfo_t*, void* context) {
    const auto at = static_cast<uint64_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    count += at >= first && at < last;
}

}  // namespace

extern "C" void start_counting(uint64_t begin, uint64_t end) {
    first = begin, last = end, count = 0;
    struct sigaction action = {};
    action.sa_sigaction = on_step;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, nullptr);
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | trap_flag);
}

extern "C" uint64_t stop_counting() {
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~trap_flag);
    signal(SIGTRAP, SIG_DFL);
    return count;
}
