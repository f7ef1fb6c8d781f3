#include "generator.hpp"

#include <ATen/Utils.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <vector>

namespace accelrt_torch {
namespace {

// What a state consists of: the seed and the offset, as on CUDA.
constexpr size_t STATE_BYTES = 2 * sizeof(uint64_t);

// Words of an operator. Only the place counts: the task's numbers are of a generator that it seeds.
constexpr uint64_t WORDS = 4;

struct Philox final : c10::GeneratorImpl {
  // Takes the handle.
  Philox(c10::DeviceIndex index, accelrt_generator* handle)
      : c10::GeneratorImpl(torch_device(index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        handle_(handle) {}

  ~Philox() override {
    accelrt_generator_destroy(handle_);
  }

  static c10::DeviceType device_type() {
    return DEVICE_TYPE;
  }

  void set_current_seed(uint64_t seed) override {
    check(accelrt_generator_set_seed(handle_, seed));
  }

  void set_offset(uint64_t offset) override {
    check(accelrt_generator_set_offset(handle_, offset));
  }

  uint64_t get_offset() const override {
    uint64_t offset = 0;
    check(accelrt_generator_get_offset(handle_, &offset));
    return offset;
  }

  uint64_t current_seed() const override {
    uint64_t seed = 0;
    check(accelrt_generator_get_seed(handle_, &seed));
    return seed;
  }

  uint64_t seed() override {
    uint64_t seed = 0;
    check(accelrt_generator_seed_randomly(handle_, &seed));
    return seed;
  }

  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(static_cast<size_t>(state.numel()) == STATE_BYTES, "A state of accelrt has ",
        STATE_BYTES, " bytes, not ", state.numel());
    uint64_t words[2];
    std::memcpy(words, state.data(), sizeof words);
    set_current_seed(words[0]);
    set_offset(words[1]);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const uint64_t words[2] = {current_seed(), get_offset()};
    auto state = at::empty({static_cast<int64_t>(STATE_BYTES)}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), words, sizeof words);
    return state.getIntrusivePtr();
  }

  uint64_t draw() {
    uint64_t seed = 0, offset = 0;
    check(accelrt_generator_reserve(handle_, WORDS, &seed, &offset));
    // The finaliser of SplitMix64 (Steele, Lea and Flood, 2014) behind each word: neighbouring
    // places give seeds that have nothing in common.
    return mixed(mixed(seed) + offset);
  }

 private:
  static uint64_t mixed(uint64_t word) {
    word += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }

  Philox* clone_impl() const override {
    accelrt_generator* handle = nullptr;
    check(accelrt_generator_clone(handle_, &handle));
    return new Philox(device().index(), handle);
  }

  accelrt_generator* handle_;
};

std::vector<at::Generator> default_generators() {
  std::vector<at::Generator> all;
  for (c10::DeviceIndex index = 0; index < device_count(); index++) {
    accelrt_generator* handle = nullptr;
    check(accelrt_generator_get_default(device_at(index), &handle));
    all.push_back(at::make_generator<Philox>(index, handle));
  }
  return all;
}

} // namespace

const at::Generator& default_generator(c10::DeviceIndex index) {
  // Never destroyed: a thread may draw while the process ends.
  static const auto& all = *new std::vector<at::Generator>(default_generators());
  const auto place = index < 0 ? current_device() : index;
  check_is_there(place);
  return all.at(place);
}

at::Generator new_generator(c10::DeviceIndex index) {
  const auto place = index < 0 ? current_device() : index;
  accelrt_generator* handle = nullptr;
  check(accelrt_generator_create(device_at(place), &handle), place);
  return at::make_generator<Philox>(place, handle);
}

uint64_t draw_task_seed(const std::optional<at::Generator>& generator, c10::DeviceIndex index) {
  auto asked = generator && generator->defined() ? *generator : default_generator(index);
  TORCH_CHECK(asked.device().type() == DEVICE_TYPE, "Expected a '", torch_device(index),
      "' device type for generator but found '", asked.device(), "'");
  const std::lock_guard<std::mutex> lock(asked.mutex());
  return asked.get<Philox>()->draw();
}

} // namespace accelrt_torch
