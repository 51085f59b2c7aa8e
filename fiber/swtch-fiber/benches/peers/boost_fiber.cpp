// Boost.Fiber: stackful fibers on one thread, round robin. One arm per process, named by the
// argument; the protocol is that of src/protocol.rs.

#include <sys/resource.h>
#include <time.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <vector>

#include <boost/fiber/all.hpp>
#include <boost/version.hpp>

namespace fibers = boost::fibers;

static int64_t now(clockid_t clock)
{
    timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

// Clocks and counters at the beginning of a block.
struct Meter {
    rusage usage;
    int64_t cpu, wall;

    Meter()
    {
        getrusage(RUSAGE_SELF, &usage);
        cpu = now(CLOCK_PROCESS_CPUTIME_ID);
        wall = now(CLOCK_MONOTONIC);
    }
};

// The meter of the present block. An arm may restart it when its fibers have begun.
static Meter meter;

// Without a pool each fiber that ends would give its stack back to the kernel.
static fibers::pooled_fixedsize_stack stacks;

static void yield_in_loop()
{
    boost::this_fiber::yield();
}

// Yields from a call depth of `depth`; there is work after each call, so that it is a call and no
// jump.
static __attribute__((noinline)) void yield_below(int depth)
{
    if (depth == 1)
        boost::this_fiber::yield();
    else
        yield_below(depth - 1);
    asm volatile("" : : "r"(depth));
}

static void yield_in_situ()
{
    yield_below(5);
}

// Several fibers that yield to each other. The meter starts when all have begun.
template <void give_way()> static uint64_t yields(uint64_t operations, uint64_t tasks)
{
    uint64_t count = 0;
    std::vector<fibers::fiber> all;
    for (uint64_t i = 0; i < tasks; i++)
        all.emplace_back(std::allocator_arg, stacks, [&] {
            for (uint64_t j = 0; j < operations / tasks; j++) {
                count++;
                give_way();
            }
        });
    boost::this_fiber::yield();
    meter = Meter();
    for (auto &one : all)
        one.join();
    return count;
}

// Fibers that end at once, `batch` at a time, joined from the last on.
static uint64_t spawns(uint64_t operations, uint64_t batch)
{
    uint64_t count = 0;
    std::vector<fibers::fiber> started;
    for (uint64_t i = 0; i < operations / batch; i++) {
        for (uint64_t j = 0; j < batch; j++)
            started.emplace_back(std::allocator_arg, stacks, [&] { count++; });
        for (auto one = started.rbegin(); one != started.rend(); ++one)
            one->join();
        started.clear();
    }
    return count;
}

// A mutex that no other fiber wants.
static uint64_t locks(uint64_t operations)
{
    uint64_t count = 0;
    fibers::mutex mutex;
    for (uint64_t i = 0; i < operations; i++) {
        std::lock_guard<fibers::mutex> guard(mutex);
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    const char *arm = argc > 1 ? argv[1] : "";
    std::function<uint64_t(uint64_t)> run;
    if (!strcmp(arm, "boost-fiber"))
        run = [](uint64_t operations) { return yields<yield_in_loop>(operations, 2); };
    else if (!strcmp(arm, "boost-fiber-in-situ"))
        run = [](uint64_t operations) { return yields<yield_in_situ>(operations, 2); };
    else if (!strcmp(arm, "boost-fiber-1000"))
        run = [](uint64_t operations) { return yields<yield_in_loop>(operations, 1000); };
    else if (!strcmp(arm, "boost-fiber-spawn"))
        run = [](uint64_t operations) { return spawns(operations, 1); };
    else if (!strcmp(arm, "boost-fiber-spawn-64"))
        run = [](uint64_t operations) { return spawns(operations, 64); };
    else if (!strcmp(arm, "boost-fiber-mutex"))
        run = locks;
    else
        return 2;

    printf("ready Boost.Fiber %d.%d\n", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000);
    fflush(stdout);
    uint64_t operations;
    while (scanf(" run %" SCNu64, &operations) == 1) {
        meter = Meter();
        uint64_t count = run(operations);
        Meter end;
        printf("%" PRIu64 " %" PRId64 " %" PRIu64 " %ld %ld %" PRId64 "\n", operations,
               end.wall - meter.wall, count, end.usage.ru_nvcsw - meter.usage.ru_nvcsw,
               end.usage.ru_nivcsw - meter.usage.ru_nivcsw, end.cpu - meter.cpu);
        fflush(stdout);
    }
    return 0;
}
