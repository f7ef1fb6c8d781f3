// Which operators are enqueued whole.
#pragma once

namespace accelrt_torch {

// To be called once, behind all static registrations.
void register_operators();

} // namespace accelrt_torch
