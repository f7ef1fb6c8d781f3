#include "hooks.hpp"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include "generator.hpp"
#include "host_allocator.hpp"
#include "storage.hpp"

namespace accelrt_torch {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  // From here on a forked child has no devices: it lacks the workers.
  void init() const override {
    TORCH_CHECK(refusal().empty(), refusal());
    torch::utils::register_fork_handler_for_device_init(DEVICE_TYPE);
  }

  bool isBuilt() const override {
    return true;
  }

  bool isAvailable() const override {
    return device_count() > 0;
  }

  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return index >= 0 && index < device_count();
  }

  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }

  void setCurrentDevice(c10::DeviceIndex index) const override {
    exchange_device(index);
  }

  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return exchange_device(index);
  }

  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return hasPrimaryContext(index) ? exchange_device(index) : current_device();
  }

  bool isPinnedPtr(const void* address) const override {
    return is_pinned(address);
  }

  at::Allocator* getPinnedMemoryAllocator() const override {
    return host_allocator();
  }

  at::Device getDeviceFromPtr(void* address) const override {
    accelrt_memory_info info{};
    info.size = sizeof info;
    check(accelrt_memory_find(reinterpret_cast<uint64_t>(address), &info));
    TORCH_CHECK(info.memory != ACCELRT_MEMORY_PINNED, "The address ", address,
        " is in pinned memory of the host");
    return torch_device(static_cast<c10::DeviceIndex>(info.device.index));
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }

  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(index);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

} // namespace

void register_hooks() {
  // Never destroyed, as torch keeps its address.
  static auto& hooks = *new Hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

} // namespace accelrt_torch
