// Where the program stands: its innermost line outside of torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accelrt_torch {

struct Place {
  // Empty on threads without Python.
  std::string file;
  int64_t line = 0;
};

// Blocks for the GIL. A thread of torch's own, as that of a backward pass, has no frames.
Place place_of_program();

// Folders whose lines are not the program's, each with a slash at its end. To be called once, before
// the first look for a place.
void set_own_folders(std::vector<std::string> folders);

// Whether tasks note the place of their call, for the text of their failure; not at first, as a
// look takes longer than an enqueue.
bool notes_places();
void set_notes_places(bool is_wanted);

} // namespace accelrt_torch
