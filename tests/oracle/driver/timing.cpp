// What PyTorch's own caching allocator costs where the device costs nothing. It says its version and
// then answers a question a line, so that it takes turns with who asks; times are nanoseconds a pair,
// a round or a step. README.md has the questions.
#include <torch/headeronly/version.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator.h"
#include "program.h"

static const uint64_t CAPACITY_BYTES = 1ull << 41;
// Of a loop's rounds the part that comes first, untimed.
static const uint64_t WARM_UP = 8;

static inline void* take(size_t bytes, cudaStream_t stream = nullptr) {
  return allocator::raw_alloc_with_stream(bytes, stream);
}
static inline void give(void* at) { allocator::raw_delete(at); }

template <class Work>
static double timed(uint64_t count, Work work) {
  auto begun = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count; i++) work();
  std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begun;
  return taken.count() / (double)count;
}

template <class Work>
static double timed_warm(uint64_t count, Work work) {
  double ns = 0;
  for (uint64_t rounds : {count / WARM_UP, count}) ns = timed(rounds, work);
  return ns;
}

// Numbers that look random: those of accelrt's benches, so that both are asked the same.
class Numbers {
  uint64_t state = 0x2545F4914F6CDD1D;

 public:
  uint64_t below(uint64_t limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % limit;
  }
};

// Live blocks, of which a round frees one and takes another, of any multiple of 512 B in a range.
class Churn {
  std::vector<void*> live;
  Numbers numbers;
  uint64_t least_bytes = 0, choices = 1;

  size_t any() { return least_bytes + 512 * (1 + numbers.below(choices)); }

 public:
  void begin(size_t count, uint64_t least, uint64_t most) {
    least_bytes = least;
    choices = (most - least) / 512;
    live.resize(count);
    for (void*& at : live) at = take(any());
  }

  // What a round frees and takes is drawn before, as in the benches.
  double ns(uint64_t rounds) {
    std::vector<std::pair<size_t, size_t>> drawn(rounds / WARM_UP + rounds);
    for (auto& [place, bytes] : drawn) {
      place = numbers.below(live.size());
      bytes = any();
    }
    auto next = drawn.begin();
    return timed_warm(rounds, [this, &next] {
      auto [place, bytes] = *next++;
      give(live[place]);
      live[place] = take(bytes);
    });
  }
};

// Requests and frees in their order.
class Trace {
  struct Timed {
    size_t place;
    int64_t bytes; // -1 is a free
    cudaStream_t stream;
  };
  std::vector<Timed> steps;
  std::vector<void*> live;

 public:
  void read(size_t count, std::istream& in) {
    std::unordered_map<int64_t, size_t> places;
    std::vector<size_t> vacant;
    steps.clear();
    size_t most = 0;
    for (std::string line; steps.size() < count && std::getline(in, line);) {
      Step step = parse_step(line);
      int64_t id = step.number(0);
      if (step.word == "free") {
        steps.push_back({places.at(id), -1, nullptr});
        vacant.push_back(places.at(id));
        places.erase(id);
        continue;
      }
      if (step.number(2) >= STUB_STREAMS) throw std::invalid_argument("no stream: " + line);
      size_t place = vacant.empty() ? most++ : vacant.back();
      if (!vacant.empty()) vacant.pop_back();
      places[id] = place;
      steps.push_back({place, step.number(1), stream_of(step.number(2))});
    }
    live.assign(most, nullptr);
  }

  double ns() {
    auto step = steps.begin();
    double taken = timed(steps.size(), [&] {
      auto [place, bytes, stream] = *step++;
      if (bytes >= 0) live[place] = take((size_t)bytes, stream);
      else give(std::exchange(live[place], nullptr));
    });
    for (void*& left : live)
      if (left) give(std::exchange(left, nullptr));
    return taken;
  }
};

// Without memory of the device, and without what the stub noted of its calls.
static void empty() {
  allocator::emptyCache();
  for (StubCall call; stub_next_call(&call);) {}
}

class Answers {
  Churn churn;
  Trace trace;

 public:
  double to(const Step& question, std::istream& in) {
    const std::string& word = question.word;
    auto number = [&](size_t index) { return (uint64_t)question.number(index); };
    if (word == "pair") {
      size_t bytes = number(0);
      return timed_warm(number(1), [bytes] { give(take(bytes)); });
    }
    if (word == "live") churn.begin(number(0), number(1), number(2));
    else if (word == "round") return churn.ns(number(0));
    else if (word == "steps") trace.read(number(0), in);
    else if (word == "again") return trace.ns();
    else if (word == "first") {
      empty();
      return trace.ns();
    } else throw std::invalid_argument("no question: " + word);
    return 0;
  }
};

int main() {
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  stub_configure(1, CAPACITY_BYTES);
  make_ready(1);
  printf("%d.%d.%d\n", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
  fflush(stdout);
  Answers answers;
  for (std::string line; std::getline(std::cin, line);) {
    printf("%.3f\n", answers.to(parse_step(line), std::cin));
    fflush(stdout);
  }
}
