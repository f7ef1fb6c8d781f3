// Random numbers: accelrt's generators as torch's, and what a task draws by.
//
// A generator is a seed and an offset. An operator takes both when it is enqueued and moves the
// offset on, so that its numbers do not depend on when the task runs.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>

#include "runtime.hpp"

namespace accelrt_torch {

// The default one of a device, which accelrt's own functions share.
const at::Generator& default_generator(c10::DeviceIndex index);

at::Generator new_generator(c10::DeviceIndex index);

// Takes the next place of a generator, and returns it as the seed of one for a task. Without a
// generator the device's default one is asked.
uint64_t draw_task_seed(const std::optional<at::Generator>& generator, c10::DeviceIndex index);

} // namespace accelrt_torch
