// What PyTorch's own caching allocator costs where the device costs nothing: a line for each case,
// its name and the median of nanoseconds an operation.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "allocator.h"

static const int REPETITIONS = 11;

static void* take(size_t bytes) { return allocator::raw_alloc_with_stream(bytes, nullptr); }
static void give(void* at) { allocator::raw_delete(at); }

template <class Round>
static void report(const std::string& name, int operations, Round round) {
  std::vector<double> taken;
  for (int repetition = 0; repetition < REPETITIONS; repetition++) {
    auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < operations; i++) round();
    std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begun;
    taken.push_back(time.count() / operations);
  }
  std::sort(taken.begin(), taken.end());
  printf("%s %.1f\n", name.c_str(), taken[REPETITIONS / 2]);
  fflush(stdout);
}

// A request and its free, which the cache serves.
static void pairs() {
  for (size_t bytes : {512ul, 65536ul, 2097152ul, 67108864ul}) {
    give(take(bytes));
    report("pair " + std::to_string(bytes), 300000, [&] { give(take(bytes)); });
  }
}

// Of so many live blocks one is freed and another one taken, of any size between two.
static void among_live(int count, size_t least, size_t most) {
  std::mt19937_64 numbers(1);
  std::vector<void*> live(count);
  auto any = [&] { return least + numbers() % (most - least); };
  for (void*& at : live) at = take(any());
  auto name = "live " + std::to_string(count) + " " + std::to_string(least) + " " + std::to_string(most);
  report(name, 100000, [&] {
    void*& at = live[numbers() % live.size()];
    give(at);
    at = take(any());
  });
  for (void* at : live) give(at);
}

int main() {
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  make_ready(1);
  pairs();
  for (int count : {1000, 10000}) {
    among_live(count, 512, 1 << 20);
    among_live(count, 1 << 20, 16 << 20);
  }
}
