// A handle of a stream that is given back when it goes.
#pragma once

#include <utility>

#include "runtime.hpp"

namespace accelrt_torch {

class HeldStream {
 public:
  explicit HeldStream(accelrt_stream* handle) : handle_(handle) {}

  static HeldStream current(c10::DeviceIndex index) {
    accelrt_stream* handle = nullptr;
    check(accelrt_stream_get_current(device_at(index), &handle), index);
    return HeldStream(handle);
  }

  static HeldStream of(const c10::Stream& stream) {
    accelrt_stream* handle = nullptr;
    const auto id = static_cast<uint64_t>(stream.id());
    check(accelrt_stream_find(device_at(stream.device_index()), id, &handle));
    return HeldStream(handle);
  }

  HeldStream(HeldStream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;
  HeldStream& operator=(HeldStream&&) = delete;

  ~HeldStream() {
    if (handle_) {
      accelrt_stream_destroy(handle_);
    }
  }

  accelrt_stream* get() const {
    return handle_;
  }

  // As torch names it.
  c10::Stream on(c10::DeviceIndex index) const {
    accelrt_stream_info info{};
    info.size = sizeof info;
    check(accelrt_stream_get_info(handle_, &info));
    const auto id = static_cast<c10::StreamId>(info.id);
    return c10::Stream(c10::Stream::UNSAFE, torch_device(index), id);
  }

 private:
  accelrt_stream* handle_;
};

} // namespace accelrt_torch
