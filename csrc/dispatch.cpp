// The C interface: checks its arguments and hands them to the instruction set that was asked for.
#include "kernel.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(SCORNN_AVX2)
#include <cpuid.h>
#endif
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

// One function of the copy of the kernel for an instruction set.
#if defined(SCORNN_AVX512)
#define SCORNN_CALL(isa, ...)                                                  \
    ((isa) == SCORNN_ISA_AVX512 ? scornn::avx512::__VA_ARGS__                  \
     : (isa) == SCORNN_ISA_AVX2 ? scornn::avx2::__VA_ARGS__                    \
                                : scornn::portable::__VA_ARGS__)
#elif defined(SCORNN_AVX2)
#define SCORNN_CALL(isa, ...) ((isa) == SCORNN_ISA_AVX2 ? scornn::avx2::__VA_ARGS__ : scornn::portable::__VA_ARGS__)
#else
#define SCORNN_CALL(isa, ...) (scornn::portable::__VA_ARGS__)
#endif

namespace {

// While it lives, numbers below the smallest normal one are zero in this thread, read or written. A gradient that
// vanishes passes through them, and on many processors each operation on one takes a hundred times as long: an LSTM's
// backward pass over the pixels of MNIST was spent on little else.
class WithoutSubnormals {
  public:
    WithoutSubnormals() : before(get()) { set(before | flush); }
    ~WithoutSubnormals() { set(before); }
    WithoutSubnormals(const WithoutSubnormals &) = delete;
    WithoutSubnormals &operator=(const WithoutSubnormals &) = delete;

  private:
#if defined(__SSE2__)
    using Mode = unsigned;
    static constexpr Mode flush = 0x8040;  // results and operands: FTZ and DAZ of MXCSR
    static Mode get() { return _mm_getcsr(); }
    static void set(Mode mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__)
    using Mode = std::uint64_t;
    static constexpr Mode flush = Mode(1) << 24;  // FZ of FPCR, for both
    static Mode get() {
        Mode mode;
        __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
        return mode;
    }
    static void set(Mode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
    using Mode = int;
    static constexpr Mode flush = 0;
    static Mode get() { return 0; }
    static void set(Mode) {}
#endif
    const Mode before;
};

// Asks for huge pages under a large array that is about to be filled: touching it page by page took a sixth of the
// forward pass. Only advice, so a refusal changes nothing.
void expect_large([[maybe_unused]] void *data, [[maybe_unused]] std::int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t page = std::uintptr_t(1) << 21;
    const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
    const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(data) + std::uintptr_t(bytes)) / page * page;
    if (bytes >= (std::int64_t(1) << 25) && begin < end)
        madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

std::int64_t output_bytes(const scornn_sequence &s) {
    std::int64_t rows = s.batch_sizes ? 0 : s.steps * s.batch;
    for (std::int64_t t = 0; s.batch_sizes && t < s.steps; ++t) rows += s.batch_sizes[t];
    return rows * s.hidden * (s.dtype == SCORNN_FLOAT32 ? 4 : 8);
}

#if defined(SCORNN_AVX2)
// What the processor has, and whether the system saves the wide registers. Asked of the processor itself: not every
// compiler's runtime has the table behind __builtin_cpu_supports, zig's has not.
bool processor_has(unsigned leaf7_ebx, unsigned saved) {
    constexpr unsigned fma_and_osxsave = 1u << 12 | 1u << 27;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & fma_and_osxsave) != fma_and_osxsave) return false;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & saved) == saved && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & leaf7_ebx) == leaf7_ebx;
}
#endif

std::uint32_t ask_processor() {
    std::uint32_t found = 1u << SCORNN_ISA_PORTABLE;
#if defined(SCORNN_AVX2)
    if (processor_has(1u << 5, 0x06)) found |= 1u << SCORNN_ISA_AVX2;
#endif
#if defined(SCORNN_AVX512)  // F, DQ, BW, VL
    if (processor_has(1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, 0xe6)) found |= 1u << SCORNN_ISA_AVX512;
#endif
    return found;
}

// Asked once in a process: under a hypervisor each CPUID is an exit to it, of ten microseconds and more. Threads that
// ask at the same time write the same answer.
bool supported(std::int32_t isa) {
    static std::uint32_t known = 0;  // one bit for each instruction set
    std::uint32_t found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (found == 0) __atomic_store_n(&known, found = ask_processor(), __ATOMIC_RELAXED);
    return isa > SCORNN_ISA_BEST && isa <= SCORNN_ISA_AVX512 && (found >> isa & 1u);
}

std::int32_t best() {
    for (std::int32_t isa = SCORNN_ISA_AVX512; isa > SCORNN_ISA_PORTABLE; --isa)
        if (supported(isa)) return isa;
    return SCORNN_ISA_PORTABLE;
}

// Whether a map fits the states, so that no index leads out of them.
bool fits(const scornn_map &map, const scornn_sequence &s) {
    const bool complex = s.cell == SCORNN_COMPLEX_MODRELU;
    const std::int64_t n = complex ? s.hidden / 2 : s.hidden;
    if (map.kind == SCORNN_FOURIER) {
        if (!complex || !map.index || !map.factor[0] || !map.factor[1]) return false;
        for (std::int64_t i = 0; i < n; ++i)
            if (map.index[i] < 0 || map.index[i] >= n) return false;
        return true;
    }
    if (map.kind != SCORNN_ROTATIONS || map.layers < 0 || (map.layers > 0 && !map.index) || (complex && !map.factor[2]))
        return false;
    for (std::int64_t k = 0; k < map.layers; ++k) {
        const std::int64_t first = map.index[3 * k], distance = map.index[3 * k + 1], pairs = map.index[3 * k + 2];
        if (first < 0 || distance < 1 || pairs < 0 || pairs > n / 2 || pairs % distance != 0 || first > n - 2 * pairs ||
            (pairs > 0 && (!map.factor[0] || (complex && !map.factor[1]))))
            return false;
    }
    return true;
}

bool sizes_fit(const scornn_sequence &s) {
    if (s.steps < 1 || s.batch < 0 || s.hidden < 1 || s.input < 1 || s.heads < 0) return false;
    if (s.dtype != SCORNN_FLOAT32 && s.dtype != SCORNN_FLOAT64) return false;
    if (s.cell == SCORNN_COMPLEX_MODRELU && s.hidden % 2 != 0) return false;
    if ((s.cell >= SCORNN_LSTM || s.map) && s.heads > 0) return false;
    if (s.cell >= SCORNN_LSTM && s.map) return false;
    if (s.cell == SCORNN_BANK && !s.U && s.input != s.hidden) return false;
    std::int64_t before = s.batch;
    for (std::int64_t t = 0; s.batch_sizes && t < s.steps; ++t) {
        if (s.batch_sizes[t] < 1 || s.batch_sizes[t] > before || (t == 0 && s.batch_sizes[t] != before)) return false;
        before = s.batch_sizes[t];
    }
    return true;
}

// Whether every array is there that the call reads or writes.
bool arrays_there(const scornn_sequence &s, const scornn_gradients *g) {
    const bool lstm = s.cell == SCORNN_LSTM, gated = s.cell >= SCORNN_LSTM, forward = !g;
    if (s.cell == SCORNN_BANK) return s.x && s.h0 && s.W && s.output && (!forward || s.h_n);
    if (!s.x || !s.h0 || (!s.W && !s.map) || !s.U || !s.output || (forward && !s.h_n)) return false;
    if (forward && s.heads > 0 && (!s.V || !s.c || !s.y)) return false;
    if (g && s.heads > 0 && g->y && !s.V) return false;
    if (g && g->V && (!g->y || s.heads == 0)) return false;
    if (lstm && (!s.c0 || (forward && !s.c_n) || !s.gates != !s.c_all)) return false;
    if (gated && g && !s.gates) return false;
    return !s.map || fits(*s.map, s);
}

std::int32_t run(const scornn_sequence *s, const scornn_gradients *g, std::int64_t begin, std::int64_t end) {
    if (!s || !sizes_fit(*s) || begin < 0 || begin > end || end > s->batch) return SCORNN_INVALID;
    if (begin < end && !arrays_there(*s, g)) return SCORNN_INVALID;
    const std::int32_t isa = s->isa == SCORNN_ISA_BEST ? best() : s->isa;
    if (!supported(isa)) return SCORNN_INVALID;
    if (begin == end) return SCORNN_OK;
    if (!g && begin == 0) {
        expect_large(s->output, output_bytes(*s));
        if (s->c_all) expect_large(s->c_all, output_bytes(*s));
        if (s->gates) expect_large(s->gates, 4 * output_bytes(*s));
    }
    const WithoutSubnormals mode;
    return SCORNN_CALL(isa, run(*s, g, begin, end));
}

std::int32_t run(const scornn_cayley *c, bool backward) {
    if (!c || c->size < 1 || c->bandwidth < 0 || c->bandwidth >= c->size || !c->D || !c->R) return SCORNN_INVALID;
    if (c->dtype != SCORNN_FLOAT32 && c->dtype != SCORNN_FLOAT64) return SCORNN_INVALID;
    if (backward ? !c->dW : !c->W) return SCORNN_INVALID;
    if (c->bandwidth > 0 && (backward ? !c->dv : !c->v)) return SCORNN_INVALID;
    const std::int32_t isa = c->isa == SCORNN_ISA_BEST ? best() : c->isa;
    if (!supported(isa)) return SCORNN_INVALID;
    const WithoutSubnormals mode;
    return SCORNN_CALL(isa, run(*c, backward));
}

struct stream_head {
    std::int32_t isa, dtype;  // what the memory of a stream begins with
};

// Whether every array is long enough for the operations on it.
bool operations_fit(const scornn_network &net) {
    for (std::int64_t k = 0; k < net.arrays; ++k)
        if (net.array_size[k] < 1) return false;
    for (std::int64_t k = 0; k < net.operations; ++k) {
        const scornn_operation &o = net.operation[k];
        const auto holds = [&](std::int64_t array, std::int64_t size) {
            return array >= 0 && array < net.arrays && net.array_size[array] >= size;
        };
        const bool lstm = o.cell == SCORNN_LSTM;
        const std::int64_t rows = o.kind == SCORNN_GATES ? (lstm ? 4 : 3) * o.n : o.kind == SCORNN_GATE ? 2 * o.n : o.n;
        const bool one = o.kind == SCORNN_MULTIPLY || o.kind == SCORNN_TURN || o.kind == SCORNN_NORM ||
                         o.kind == SCORNN_ADD || o.kind == SCORNN_PICK || o.kind == SCORNN_MEAN;
        const bool two = o.kind == SCORNN_ACTIVATE || o.kind == SCORNN_GATES || o.kind == SCORNN_GATE;
        const std::int64_t read = o.kind == SCORNN_MULTIPLY ? o.m : o.kind == SCORNN_PICK ? o.m * (o.n - 1) + 1 : rows;
        const bool weighted = o.kind == SCORNN_MULTIPLY || o.kind == SCORNN_TURN || o.kind == SCORNN_NORM ||
                              (o.kind == SCORNN_GATES && !lstm);
        if (o.kind < 0 || o.kind > SCORNN_EVERY || o.n < 1 || !holds(o.y, o.n)) return false;
        if ((o.kind == SCORNN_MULTIPLY || o.kind == SCORNN_PICK || o.kind == SCORNN_EVERY) && o.m < 1) return false;
        if ((one || two) && !holds(o.x[0], read)) return false;
        if (two && !holds(o.x[1], rows)) return false;
        if (o.kind == SCORNN_MULTIPLY && o.x[0] == o.y) return false;
        if (o.kind == SCORNN_ACTIVATE && (o.cell < 0 || o.cell > SCORNN_COMPLEX_MODRELU)) return false;
        if (o.kind == SCORNN_GATES && (o.cell < SCORNN_LSTM || o.cell > SCORNN_GORU)) return false;
        if (o.kind == SCORNN_GATES && lstm && !holds(o.x[2], o.n)) return false;
        if (o.kind == SCORNN_MEAN && !(holds(o.x[1], o.n) && holds(o.x[2], 1))) return false;
        if ((weighted && !o.weights[0]) || (o.kind == SCORNN_NORM && !o.weights[1])) return false;
    }
    return true;
}

}  // namespace

std::int64_t scornn_prepare(const scornn_network *net, void *memory) {
    if (!net || net->batch < 1 || net->arrays < 2 || net->operations < 1 || !operations_fit(*net)) return -1;
    if (net->dtype != SCORNN_FLOAT32 && net->dtype != SCORNN_FLOAT64) return -1;
    const std::int32_t isa = net->isa == SCORNN_ISA_BEST ? best() : net->isa;
    if (!supported(isa)) return -1;
    return SCORNN_CALL(isa, prepare(*net, isa, memory));
}

std::int64_t scornn_step(void *memory, std::int64_t frames, const void *x, void *y) {
    const stream_head &head = *static_cast<const stream_head *>(memory);
    const WithoutSubnormals mode;
    return SCORNN_CALL(head.isa, step(memory, head.dtype == SCORNN_FLOAT32, frames, x, y));
}

void scornn_reset(void *memory) {
    const stream_head &head = *static_cast<const stream_head *>(memory);
    SCORNN_CALL(head.isa, reset(memory, head.dtype == SCORNN_FLOAT32));
}

std::int32_t scornn_abi_version(void) { return SCORNN_ABI_VERSION; }

std::int64_t scornn_struct_size(std::int32_t which) {
    switch (which) {
        case SCORNN_STRUCT_SEQUENCE: return sizeof(scornn_sequence);
        case SCORNN_STRUCT_GRADIENTS: return sizeof(scornn_gradients);
        case SCORNN_STRUCT_TASK: return sizeof(scornn_task);
        case SCORNN_STRUCT_TASKS: return sizeof(scornn_tasks);
        case SCORNN_STRUCT_MAP: return sizeof(scornn_map);
        case SCORNN_STRUCT_CAYLEY: return sizeof(scornn_cayley);
        case SCORNN_STRUCT_OPERATION: return sizeof(scornn_operation);
        case SCORNN_STRUCT_NETWORK: return sizeof(scornn_network);
        default: return 0;
    }
}

std::int32_t scornn_isa_supported(std::int32_t isa) { return supported(isa); }

std::int32_t scornn_best_isa(void) { return best(); }

std::int32_t scornn_forward(const scornn_sequence *s, std::int64_t begin, std::int64_t end) {
    return run(s, nullptr, begin, end);
}

std::int32_t scornn_backward(const scornn_sequence *s, const scornn_gradients *g, std::int64_t begin,
                             std::int64_t end) {
    return g ? run(s, g, begin, end) : std::int32_t(SCORNN_INVALID);
}

std::int32_t scornn_cayley_forward(const scornn_cayley *c) { return run(c, false); }

std::int32_t scornn_cayley_backward(const scornn_cayley *c) { return run(c, true); }

void scornn_work(void *tasks) {
    if (!tasks || !static_cast<scornn_tasks *>(tasks)->tasks) return;
    scornn_tasks &list = *static_cast<scornn_tasks *>(tasks);
    for (;;) {
        const std::int64_t number = __atomic_fetch_add(&list.next, 1, __ATOMIC_RELAXED);
        if (number >= list.count) return;
        scornn_task &task = list.tasks[number];
        task.status = run(task.sequence, task.gradients, task.row_begin, task.row_end);
    }
}

double scornn_peak(std::int32_t dtype, std::int32_t isa, std::int64_t iterations) {
    switch (isa == SCORNN_ISA_BEST ? best() : isa) {
#if defined(SCORNN_AVX2)
        case SCORNN_ISA_AVX2: return supported(SCORNN_ISA_AVX2) ? scornn::avx2::peak(dtype, iterations) : 0;
#endif
#if defined(SCORNN_AVX512)
        case SCORNN_ISA_AVX512: return supported(SCORNN_ISA_AVX512) ? scornn::avx512::peak(dtype, iterations) : 0;
#endif
        default: return scornn::portable::peak(dtype, iterations);
    }
}
