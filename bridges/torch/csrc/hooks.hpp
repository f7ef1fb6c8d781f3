// What torch asks of an accelerator without naming it.
#pragma once

namespace accelrt_torch {

// To be called behind `bind`, once.
void register_hooks();

} // namespace accelrt_torch
