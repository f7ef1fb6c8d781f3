#include "runtime.hpp"

namespace accelrt_torch {

const accelrt_table* table = nullptr;

namespace {

int32_t kind = ACCELRT_CPU;
std::string why_refused = "accelrt is not loaded: `import accelrt_torch` does it";

std::string name_of(int32_t a_kind) {
  char name[64] = "";
  check(accelrt_kind_get_name(a_kind, name, sizeof name, nullptr));
  return name;
}

// Tasks are kernels of the CPU, which read and write device memory where it is.
std::string look_for_refusal() {
  if (kind == ACCELRT_CPU) {
    return "";
  }
  return "accelrt's accelerator is " + name_of(kind) +
      ", whose memory the host cannot read: kernels of the CPU cannot work there. "
      "ACCELRT_ACCELERATOR=cpu chooses devices that they can work on";
}

} // namespace

void bind(const void* address) {
  const auto* given = static_cast<const accelrt_table*>(address);
  TORCH_CHECK(
      given->abi == ACCELRT_ABI_VERSION && ACCELRT_TABLE_HAS(given, stream_launch_described),
      "accelrt-torch was built for version ", ACCELRT_ABI_VERSION, " and ", sizeof(accelrt_table),
      " bytes of accelrt's table, and there are version ", given->abi, " and ", given->size,
      " bytes: install both of one release");
  table = given;
  // What is wrong with the accelerator is told at its first use: a program that imports torch may
  // not want it.
  const auto status = accelrt_kind_get_accelerator(&kind);
  why_refused = status == ACCELRT_STATUS_OK ? look_for_refusal() : accelrt_error_text();
}

const std::string& refusal() {
  return why_refused;
}

void raise(accelrt_status status) {
  const std::string text = accelrt_error_text();
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (status) {
    case ACCELRT_STATUS_OUT_OF_MEMORY:
      throw c10::OutOfMemoryError(here, text);
    case ACCELRT_STATUS_STREAM_FAILED:
    case ACCELRT_STATUS_DEVICE_LOST:
      throw c10::AcceleratorError(here, static_cast<int32_t>(status), text);
    case ACCELRT_STATUS_UNSUPPORTED:
      throw c10::NotImplementedError(here, text);
    default:
      throw c10::Error(here, text);
  }
}

void check_is_there(c10::DeviceIndex index) {
  const int place = index, count = device_count();
  TORCH_CHECK(refusal().empty(), refusal());
  TORCH_CHECK(place >= 0, "There is no device accelrt:", place, ": an index is 0 to ", count - 1);
  TORCH_CHECK(place < count, "There is no device accelrt:", place, ": there are ", count,
      ", indices 0 to ", count - 1, ". ACCELRT_CPU_DEVICES=", place + 1,
      " in the environment makes so many");
}

void warn(accelrt_status status) noexcept {
  if (status != ACCELRT_STATUS_OK) {
    try {
      TORCH_WARN(accelrt_error_text());
    } catch (...) { // a warning that is an error has nowhere to go
    }
  }
}

namespace {

// Else a program that takes the accelerator where there is one goes on without it, and nothing says
// why.
void warn_of_no_devices(const char* why) noexcept {
  try {
    TORCH_WARN_ONCE("accelrt has no devices for torch: ", why);
  } catch (...) { // a warning that is an error: torch asks for the number where nothing may throw
  }
}

} // namespace

accelrt_device device_at(c10::DeviceIndex index) {
  return {kind, index};
}

c10::DeviceIndex device_count() noexcept {
  int32_t count = 0;
  if (!why_refused.empty()) {
    warn_of_no_devices(why_refused.c_str());
  } else if (accelrt_device_get_count(kind, &count) != ACCELRT_STATUS_OK) {
    warn_of_no_devices(accelrt_error_text());
  }
  return static_cast<c10::DeviceIndex>(count);
}

c10::DeviceIndex current_device() {
  accelrt_device device;
  check(accelrt_device_get_current(kind, &device));
  return static_cast<c10::DeviceIndex>(device.index);
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  TORCH_CHECK(why_refused.empty(), why_refused);
  accelrt_device previous;
  check(accelrt_device_exchange(device_at(index), &previous), index);
  return static_cast<c10::DeviceIndex>(previous.index);
}

} // namespace accelrt_torch
