// What torch asks of every kind of device: current devices and streams, events, waits.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device_allocator.hpp"
#include "gil.hpp"
#include "stream.hpp"
#include "warnings.hpp"

namespace accelrt_torch {
namespace {

accelrt_event* event_of(void* event) {
  return static_cast<accelrt_event*>(event);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = DEVICE_TYPE;

  Guard() = default;
  explicit Guard(c10::DeviceType) {}

  c10::DeviceType type() const override {
    return DEVICE_TYPE;
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    return torch_device(exchange_device(device.index()));
  }

  c10::Device getDevice() const override {
    return torch_device(current_device());
  }

  void setDevice(c10::Device device) const override {
    exchange_device(device.index());
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    warn(accelrt_device_exchange(device_at(device.index()), nullptr));
  }

  c10::Stream getStream(c10::Device device) const override {
    const auto index = index_of(device);
    return HeldStream::current(index).on(index);
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, torch_device(index_of(device)));
  }

  c10::Stream getNewStream(c10::Device device, int priority) const override {
    const auto index = index_of(device);
    accelrt_device_properties properties{};
    properties.size = sizeof properties;
    check(accelrt_device_get_properties(device_at(index), &properties), index);
    // As on CUDA: a priority beyond what the device has is the nearest one.
    const int urgent = std::max(priority, static_cast<int>(properties.greatest_priority));
    const int clamped = std::min(urgent, static_cast<int>(properties.least_priority));
    accelrt_stream* handle = nullptr;
    check(accelrt_stream_get_pooled(device_at(index), clamped, &handle), index);
    return HeldStream(handle).on(index);
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high) const override {
    return getNewStream(device, is_high ? -1 : 0);
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    accelrt_stream* previous = nullptr;
    check(accelrt_stream_exchange(HeldStream::of(stream).get(), &previous));
    return HeldStream(previous).on(stream.device_index());
  }

  // A number that tells streams apart, where the device has no streams of a driver.
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(stream.id()));
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }

  // Those that the CPU's kernels convert to others: not quantized numbers, packed bits and integers
  // of less than a byte.
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_QInt8 = types.has_QUInt8 = types.has_QInt32 = 0;
    types.has_QUInt4x2 = types.has_QUInt2x4 = 0;
    types.has_Bits1x8 = types.has_Bits2x4 = types.has_Bits4x2 = types.has_Bits8 = 0;
    types.has_Bits16 = types.has_Float4_e2m1fn_x2 = 0;
    types.has_UInt1 = types.has_UInt2 = types.has_UInt3 = types.has_UInt4 = types.has_UInt5 = 0;
    types.has_UInt6 = types.has_UInt7 = 0;
    types.has_Int1 = types.has_Int2 = types.has_Int3 = types.has_Int4 = types.has_Int5 = 0;
    types.has_Int6 = types.has_Int7 = 0;
    return capability;
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event) {
      warn(accelrt_event_destroy(event_of(event)));
    }
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
      const c10::EventFlag flag) const override {
    TORCH_CHECK(index == -1 || index == stream.device_index(), "Event device index ", index,
        " does not match recording stream's device index ", stream.device_index(), ".");
    const auto held = HeldStream::of(stream);
    if (!*event) {
      accelrt_event* made = nullptr;
      check(accelrt_event_create(flag == c10::EventFlag::BACKEND_DEFAULT, &made));
      *event = made;
    }
    check(accelrt_event_record(event_of(*event), held.get()));
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event) {
      check(accelrt_stream_wait_event(HeldStream::of(stream).get(), event_of(event)));
    }
  }

  bool queryEvent(void* event) const override {
    int32_t is_done = 1;
    if (event) {
      const WithoutGil without_gil; // under a schedule it runs a task
      check(accelrt_event_query(event_of(event), &is_done));
    }
    return is_done != 0;
  }

  bool queryStream(const c10::Stream& stream) const override {
    int32_t is_done = 0;
    const WithoutGil without_gil; // under a schedule it runs a task
    check(accelrt_stream_query(HeldStream::of(stream).get(), &is_done));
    return is_done != 0;
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    check(accelrt_stream_synchronize(HeldStream::of(stream).get(), ACCELRT_NO_LIMIT));
    issue_kept_warnings();
  }

  void synchronizeEvent(void* event) const override {
    if (event) {
      check(accelrt_event_synchronize(event_of(event), ACCELRT_NO_LIMIT));
      issue_kept_warnings();
    }
  }

  void synchronizeDevice(const c10::DeviceIndex index) const override {
    check(accelrt_device_synchronize(device_at(index), ACCELRT_NO_LIMIT), index);
    issue_kept_warnings();
  }

  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& s) const override {
    record_use(pointer, s);
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    double elapsed_ms = 0;
    check(accelrt_event_get_elapsed(event_of(start), event_of(end), &elapsed_ms));
    return elapsed_ms;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

} // namespace
} // namespace accelrt_torch
