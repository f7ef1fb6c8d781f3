// The process's runtime: the table of its functions, the kind of its devices, its errors as torch's.
//
// The table is that of the Python module accelrt, so that both have one runtime. A function of
// accelrt.h is called through it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <string>

#define ACCELRT_TABLE ::accelrt_torch::table
#include <accelrt.h>

namespace accelrt_torch {

constexpr auto DEVICE_TYPE = c10::DeviceType::PrivateUse1;

extern const accelrt_table* table;

// Takes the table, and the accelerator's kind as that of all devices. Throws for an accelrt whose
// table lacks what this extension was built for.
void bind(const void* address);

// Why devices of the kind cannot be torch's; empty when they can.
const std::string& refusal();

[[noreturn]] void raise(accelrt_status status);

// Throws what a function came to, unless that is success.
inline void check(accelrt_status status) {
  if (C10_UNLIKELY(status != ACCELRT_STATUS_OK)) {
    raise(status);
  }
}

// Throws for an index that no device has, with how many there are.
void check_is_there(c10::DeviceIndex index);

// Throws what a function came to that was given the device of this index.
inline void check(accelrt_status status, c10::DeviceIndex index) {
  if (C10_UNLIKELY(status != ACCELRT_STATUS_OK)) {
    check_is_there(index);
    raise(status);
  }
}

// For destructors and what else must not throw.
void warn(accelrt_status status) noexcept;

accelrt_device device_at(c10::DeviceIndex index);

inline c10::Device torch_device(c10::DeviceIndex index) {
  return c10::Device(DEVICE_TYPE, index);
}

// 0 where there is no device that torch can have.
c10::DeviceIndex device_count() noexcept;

c10::DeviceIndex current_device();

// Of a device without an index the current one.
inline c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device();
}

// Returns the previous one.
c10::DeviceIndex exchange_device(c10::DeviceIndex index);

} // namespace accelrt_torch
