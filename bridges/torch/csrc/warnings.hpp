// Warnings of kernels. A task runs on a thread without Python's warning handler: its warnings are
// kept, and issued by the next operator or wait of a thread that has one.
#pragma once

#include <c10/util/Exception.h>

#include <utility>
#include <vector>

namespace accelrt_torch {

class WarningCollector final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    collected_.push_back(warning);
  }

  std::vector<c10::Warning> take() {
    return std::exchange(collected_, {});
  }

 private:
  std::vector<c10::Warning> collected_;
};

// To be called once, outside of torch's operators: records torch's default handler.
void note_default_handler();

void keep_warnings(std::vector<c10::Warning> warnings);

// Issues the kept warnings, on threads of C++ later. Blocks for the GIL if there are any. Throws
// where Python makes a warning an error.
void issue_kept_warnings();

} // namespace accelrt_torch
