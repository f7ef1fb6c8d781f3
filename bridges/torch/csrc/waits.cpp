#include "waits.hpp"

#include <chrono>
#include <map>
#include <mutex>
#include <tuple>

#include "gil.hpp"
#include "places.hpp"
#include "warnings.hpp"

namespace accelrt_torch {
namespace {

struct Sum {
  int64_t count = 0;
  int64_t waited_ns = 0;
};

using Key = std::tuple<std::string, std::string, int64_t>;

// More than any program has lines that wait: of one that makes code as it runs, the later places
// count as an unknown one.
constexpr size_t MOST_PLACES = 4096;

std::mutex lock;
std::map<Key, Sum> sums;

Sum& sum_of(const Key& key) {
  const auto known = sums.find(key);
  if (known != sums.end()) {
    return known->second;
  }
  return sums.size() < MOST_PLACES ? sums[key] : sums[{std::get<0>(key), "", 0}];
}

accelrt_status synchronize(const HeldStream& stream) {
  const WithoutGil without_gil;
  return accelrt_stream_synchronize(stream.get(), ACCELRT_NO_LIMIT);
}

} // namespace

void wait_for(const HeldStream& stream, const char* name) {
  const auto where = place_of_program();
  const auto begin = std::chrono::steady_clock::now();
  const auto status = synchronize(stream);
  const auto waited = std::chrono::steady_clock::now() - begin;
  {
    const std::lock_guard<std::mutex> held(lock);
    auto& sum = sum_of({name, where.file, where.line});
    sum.count += 1;
    sum.waited_ns += std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count();
  }
  check(status);
  issue_kept_warnings();
}

std::vector<Wait> waits() {
  const std::lock_guard<std::mutex> held(lock);
  std::vector<Wait> all;
  for (const auto& [key, sum] : sums) {
    const auto& [name, file, line] = key;
    all.push_back({name, file, line, sum.count, sum.waited_ns});
  }
  return all;
}

void forget_waits() {
  const std::lock_guard<std::mutex> held(lock);
  sums.clear();
}

} // namespace accelrt_torch
