#include "shapes.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/accumulate.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "alias.hpp"
#include "corrections.hpp"
#include "task.hpp"
#include "values.hpp"
#include "warnings.hpp"

namespace accelrt_torch {
namespace {

// Of one operator. A program whose shapes never come again keeps no more than these.
constexpr size_t MOST_KNOWN = 1024;

std::atomic<int64_t> hits{0}; // relaxed, as `misses`: nothing is ordered by counts
std::atomic<int64_t> misses{0};

int64_t bits_of(double value) {
  int64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Kernels may refuse a number for its sign, or because a type of integers or of half precision has
// not so large a one. What lies between two of these is alike to them.
int64_t class_of(double value) {
  constexpr std::array<double, 14> LIMITS = {0, 127, 128, 255, 32767, 32768, 65504, 65535, 0x1p31 - 1,
      0x1p31, 0x1p32 - 1, 0x1p63, std::numeric_limits<float>::max(),
      std::numeric_limits<double>::max()};
  const double size = std::abs(value); // one that is no number is beyond all
  int64_t nth = 0;
  for (const double limit : LIMITS) {
    nth += size <= limit ? 0 : 1;
  }
  return std::isnan(value) ? 64 : std::signbit(value) ? -nth : nth;
}

void add_number(ShapeKey& key, const c10::IValue& value) {
  const auto kind = value.isInt() ? -3 : value.isDouble() ? -4 : value.isBool() ? -5 : -6;
  const auto size = value.isInt() ? static_cast<double>(value.toInt())
      : value.isDouble()          ? value.toDouble()
                                  : 0;
  key.push_back(kind - 128 - class_of(size) * 8);
}

void add(ShapeKey& key, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    key.push_back(-1);
    return;
  }
  const auto* impl = tensor.unsafeGetTensorImpl();
  const int64_t flags = (impl->is_wrapped_number() ? 1 : 0) | (tensor.is_conj() ? 2 : 0) |
      (tensor.is_neg() ? 4 : 0) | (is_ours(tensor) ? 8 : 0);
  key.push_back(static_cast<int64_t>(tensor.scalar_type()) << 32 | tensor.dim() << 8 | flags);
  key.append(tensor.sizes().begin(), tensor.sizes().end());
  key.append(tensor.strides().begin(), tensor.strides().end());
}

template <typename List>
void add_all(ShapeKey& key, int64_t mark, const List& list) {
  key.push_back(mark - static_cast<int64_t>(list.size()) * 16);
  for (const auto& each : list) {
    if constexpr (std::is_same_v<std::decay_t<decltype(each)>, double>) {
      key.push_back(bits_of(each));
    } else {
      key.push_back(static_cast<int64_t>(each));
    }
  }
}

// False for what no key can stand for.
bool add(ShapeKey& key, const c10::IValue& value, bool is_number, bool ignores_numbers) {
  if (value.isTensor()) {
    add(key, value.toTensor());
  } else if (value.isNone()) {
    key.push_back(-2);
  } else if (is_number && ignores_numbers) {
    add_number(key, value);
  } else if (value.isInt()) {
    key.push_back(-7);
    key.push_back(value.toInt());
  } else if (value.isDouble()) {
    key.push_back(-8);
    key.push_back(bits_of(value.toDouble()));
  } else if (value.isBool()) {
    key.push_back(value.toBool() ? -9 : -10);
  } else if (value.isIntList()) {
    add_all(key, -1001, value.toIntVector());
  } else if (value.isDoubleList()) {
    add_all(key, -1002, value.toDoubleVector());
  } else if (value.isBoolList()) {
    const auto list = value.toBoolList();
    key.push_back(-1003 - static_cast<int64_t>(list.size()) * 16);
    for (const bool each : list) {
      key.push_back(each ? 1 : 0);
    }
  } else if (value.isString()) {
    add_all(key, -1004, value.toStringRef());
  } else if (value.isDevice()) {
    key.push_back(-11);
    key.push_back(static_cast<int64_t>(value.toDevice().type()));
  } else if (value.isGenerator()) {
    key.push_back(-12);
  } else if (is_list_of_tensors(value)) {
    key.push_back(-13);
    bool has_host_mask = false; // the data of which Meta reads
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      has_host_mask |= tensor.defined() && !is_ours(tensor) &&
          (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
      add(key, tensor);
    });
    key.push_back(-14);
    return !has_host_mask;
  } else {
    return false;
  }
  return true;
}

bool make_key(ShapeKey& key, const c10::FunctionSchema& schema,
    at::ArrayRef<c10::IValue> arguments) {
  // Integers become numbers of this type.
  key.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  // What makes tensors of numbers alone, as `arange`, takes its shape from them.
  bool has_tensor = false;
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    has_tensor |= (arguments[nth].isTensor() || is_list_of_tensors(arguments[nth])) &&
        !schema.arguments()[nth].is_out();
  }
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const bool is_number = schema.arguments()[nth].type()->kind() == c10::TypeKind::NumberType;
    if (!add(key, arguments[nth], is_number, has_tensor)) {
      return false;
    }
  }
  return true;
}

at::Tensor on_meta(const at::Tensor& tensor) {
  auto meta = at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta).requires_grad(false));
  meta._set_conj(tensor.is_conj());
  meta._set_neg(tensor.is_neg());
  return meta;
}

Shapes ask_meta(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  Twins twins(&on_meta);
  torch::jit::Stack stack;
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    const auto& value = arguments[nth];
    if (op.schema().arguments()[nth].is_out() && value.isTensor() && is_ours(value.toTensor())) {
      // Without elements: the strides are those of a result, and nothing warns of other sizes.
      stack.emplace_back(at::empty({0}, value.toTensor().options().device(c10::kMeta)));
    } else if (value.isGenerator()) {
      stack.emplace_back();
    } else if (value.isDevice()) {
      stack.emplace_back(c10::Device(c10::kMeta));
    } else {
      stack.push_back(map_tensors(value, [&](const at::Tensor& it) { return twins.of(it); }));
    }
  }
  WarningCollector ignored; // the CPU's kernel has warnings of its own
  const c10::WarningUtils::WarningHandlerGuard ignores(&ignored);
  try {
    const KernelState state;
    op.callBoxed(stack);
    auto shapes = shapes_of(stack);
    correct(op, arguments, shapes);
    return shapes;
  } catch (const std::exception&) {
    // No kernel, or wrong arguments: the CPU's own kernel says what is wrong in its words.
    return std::nullopt;
  }
}

int64_t elements_of(const Shapes& shapes) {
  int64_t elements = 0;
  for (const auto& shape : *shapes) {
    elements += shape ? c10::multiply_integers(shape->sizes) : 0;
  }
  return elements;
}

} // namespace

size_t ShapeCache::Hash::operator()(const ShapeKey& key) const {
  // Fowler, Noll and Vo's constants, on words in place of bytes.
  uint64_t hash = 0xcbf29ce484222325;
  for (const auto word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

namespace {

// A warning of `resize_output` or of a new tensor, which the call itself issues.
bool is_of_call(const c10::Warning& warning) {
  return warning.msg().starts_with("An output with one or more elements was resized") ||
      warning.msg().starts_with("ComplexHalf support is experimental");
}

// Takes the kernel's strides and types where its sizes are Meta's. Returns whether one differed.
bool take_from_kernel(const ShapeList& made, ShapeList& shapes) {
  if (made.size() != shapes.size()) {
    return false;
  }
  bool differed = false;
  for (size_t nth = 0; nth < made.size(); nth++) {
    const auto& own = made[nth];
    auto& known = shapes[nth];
    if (own && known && own->sizes == known->sizes) {
      differed |= own->strides != known->strides || own->dtype != known->dtype;
      known = own;
    }
  }
  return differed;
}

} // namespace

CallInfo ShapeCache::ask(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  CallInfo info{ask_meta(op, arguments)};
  if (!info.shapes) {
    return info;
  }
  auto probe = probes_.call(op, arguments, elements_of(info.shapes));
  if (probe.is_refused) {
    return {};
  }
  std::erase_if(probe.warnings, is_of_call);
  info.warnings = std::move(probe.warnings);
  if (probe.shapes) {
    info.is_of_kernel = true;
    info.differs_from_meta = take_from_kernel(*probe.shapes, *info.shapes);
    if (info.differs_from_meta) {
      probes_.distrust_meta();
    }
  }
  return info;
}

std::shared_ptr<const CallInfo> ShapeCache::find(
    const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, int64_t overlap) {
  ShapeKey key;
  key.push_back(overlap);
  const bool can_be_kept = make_key(key, op.schema(), arguments);
  if (can_be_kept) {
    const std::lock_guard<std::mutex> held(lock_);
    const auto place = known_.find(key);
    if (place != known_.end()) {
      hits.fetch_add(1, std::memory_order_relaxed);
      return place->second;
    }
  }
  misses.fetch_add(1, std::memory_order_relaxed);
  const auto asked = std::make_shared<const CallInfo>(ask(op, arguments));
  if (can_be_kept) {
    const std::lock_guard<std::mutex> held(lock_);
    if (known_.size() >= MOST_KNOWN) {
      known_.clear();
    }
    known_.emplace(std::move(key), asked);
  }
  return asked;
}

void ShapeCache::clear() {
  const std::lock_guard<std::mutex> held(lock_);
  known_.clear();
}

ShapeCounts shape_counts() {
  return {hits.load(std::memory_order_relaxed), misses.load(std::memory_order_relaxed)};
}

} // namespace accelrt_torch
