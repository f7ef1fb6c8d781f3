// What waits, and what may, does without Python's lock: a stream may have functions of Python, and
// torch keeps the lock in some of its calls, as those of storages.
#pragma once

namespace accelrt_torch {

// The thread is without the lock while this is there, if it had it.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* state_; // Python's, whose header no other one may come before
};

} // namespace accelrt_torch
