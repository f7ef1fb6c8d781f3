// Which operators made their thread wait for a stream, how often, and where the program stood.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stream.hpp"

namespace accelrt_torch {

struct Wait {
  std::string name;
  // Of the program's innermost line outside of torch; empty on threads without Python.
  std::string file;
  int64_t line;
  int64_t count;
  int64_t waited_ns;
};

// Waits for the stream, and notes that.
void wait_for(const HeldStream& stream, const char* name);

std::vector<Wait> waits();

void forget_waits();

} // namespace accelrt_torch
