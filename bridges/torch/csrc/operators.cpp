#include "operators.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <atomic>
#include <unordered_map>

#include "alias.hpp"
#include "device_allocator.hpp"
#include "generator.hpp"
#include "plan.hpp"
#include "task.hpp"
#include "values.hpp"
#include "waits.hpp"
#include "warnings.hpp"

namespace accelrt_torch {
namespace {

using torch::jit::Stack;

std::atomic<int64_t> enqueued{0}; // relaxed: nothing is ordered by a count
std::atomic<bool> defers_counts{false}; // relaxed: a call that races with the change does either

// How the tensors that are written share bytes with themselves or with other arguments.
struct Overlap {
  // In a way that kernels refuse. Meta's tensors have no bytes to compare.
  bool is_partial = false;
  // Stands for the arguments of which one is written and the other one is all of its bytes: 0 for
  // none. Only some kernels refuse it.
  int64_t whole = 0;

  bool is_any() const {
    return is_partial || whole != 0;
  }
};

// A call of an operator, as the dispatcher passes it.
struct Call {
  Plan& plan;
  at::ArrayRef<c10::IValue> arguments;
  c10::Device device;
  Overlap overlap;
};

[[noreturn]] void refuse_two(const Plan& plan, c10::Device one, c10::Device other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two ",
      "devices, ", one, " and ", other, "! (when calling ", plan.name, ")");
}

// Whether an argument may be a tensor of the host: a number that is read, or what the plan allows.
bool may_be_hosts(const Plan& plan, size_t place, const at::Tensor& tensor) {
  const auto& written = plan.written;
  if (std::find(written.begin(), written.end(), place) != written.end()) {
    return false; // the task has a copy, which would be written in its place
  }
  return (tensor.device().is_cpu() && tensor.dim() == 0) ||
      (plan.host_tensors_at && place == *plan.host_tensors_at);
}

// The device of the tensors. Throws where they are of several, as the kernels of CUDA do.
c10::Device device_of(const Plan& plan, at::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found, refused, named;
  for (size_t place = 0; place < arguments.size(); place++) {
    const auto& value = arguments[place];
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        return;
      }
      if (!is_ours(tensor)) {
        if (!may_be_hosts(plan, place, tensor)) {
          refused = tensor.device();
        }
        return;
      }
      if (found && *found != tensor.device()) {
        refuse_two(plan, *found, tensor.device());
      }
      found = tensor.device();
    });
    if (value.isDevice() && value.toDevice().type() == DEVICE_TYPE) {
      named = torch_device(index_of(value.toDevice()));
    }
  }
  const auto device = found ? *found : named ? *named : torch_device(current_device());
  if (refused) {
    refuse_two(plan, device, *refused);
  }
  return device;
}

Overlap overlap_of(const Plan& plan, at::ArrayRef<c10::IValue> arguments) {
  Overlap found;
  const auto compare = [&](size_t place, const at::Tensor& written) {
    if (!is_ours(written)) {
      return;
    }
    found.is_partial |= at::has_internal_overlap(written) == at::MemOverlap::Yes;
    for (size_t other = 0; other < arguments.size(); other++) {
      for_each_tensor(arguments[other], [&](const at::Tensor& tensor) {
        if (!is_ours(tensor) || !tensor.storage().is_alias_of(written.storage())) {
          return;
        }
        const auto status = at::get_overlap_status(written, tensor);
        found.is_partial |= status == at::MemOverlapStatus::Partial;
        if (status == at::MemOverlapStatus::Full && other != place) {
          found.whole = found.whole * 64 + static_cast<int64_t>(place * 8 + other + 1);
        }
      });
    }
  };
  for (const auto place : plan.written) {
    for_each_tensor(arguments[place], [&](const at::Tensor& it) { compare(place, it); });
  }
  return found;
}

// The operator's arguments for the CPU's kernel.
Stack host_arguments(const Call& call) {
  // Tensors that have a storage in common keep that: their kernel is to find the overlap.
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages;
  Twins twins([&](const at::Tensor& tensor) {
    const auto& storage = tensor.storage();
    const auto* key = storage.unsafeGetStorageImpl();
    return host_alias(tensor, storages.try_emplace(key, host_storage(storage)).first->second);
  });
  const auto alias = [&](const at::Tensor& tensor) {
    return !is_ours(tensor)     ? own_copy(tensor)
        : call.overlap.is_any() ? twins.of(tensor)
                                : host_alias(tensor);
  };
  Stack stack;
  stack.reserve(call.arguments.size() + call.plan.op.schema().returns().size());
  for (const auto& value : call.arguments) {
    if (value.isDevice()) {
      stack.emplace_back(c10::Device(c10::kCPU));
    } else {
      stack.push_back(map_tensors(value, alias));
    }
  }
  return stack;
}

std::optional<at::Generator> given_generator(const Call& call) {
  const auto& value = call.arguments[*call.plan.generator];
  return value.isNone() ? std::nullopt : std::make_optional(value.toGenerator());
}

bool is_written(const Call& call, size_t nth) {
  const auto& [written, when] = std::tie(call.plan.written, call.plan.written_when);
  return std::find(written.begin(), written.end(), nth) != written.end() &&
      (!when || call.arguments[*when].toBool());
}

bool is_mask(const c10::IValue& value) {
  return value.isTensor() &&
      (value.toTensor().scalar_type() == at::kBool || value.toTensor().scalar_type() == at::kByte);
}

// Whether `values` fit every count of true elements of the masks in `indices`: there is one value, or
// one for all elements that the masks choose.
bool fits_every_count(const at::Tensor& self, const c10::IValue& indices, const at::Tensor& values) {
  if (values.numel() == 1) {
    return true;
  }
  int64_t indexed_dims = 0, index_count = 0;
  for (const c10::IValue& index : indices.toListRef()) {
    const bool is_given = index.isTensor() && index.toTensor().defined();
    index_count += is_given ? 1 : 0;
    indexed_dims += is_mask(index) && is_given ? index.toTensor().dim() : 1;
  }
  const auto dims_after = self.dim() - indexed_dims;
  const auto place = values.dim() - 1 - dims_after; // of the count, where one mask comes last
  return index_count == 1 && (place < 0 || values.size(place) == 1);
}

// Whether the arguments are right only for some counts of true elements in a mask. The call counts
// them, as on the CPU, unless the program defers that to the task.
bool depends_on_count(const Call& call) {
  const auto& arguments = call.arguments;
  if (C10_LIKELY(call.plan.masks == Plan::Masks::None) ||
      defers_counts.load(std::memory_order_relaxed)) {
    return false;
  }
  const auto& self = arguments[0].toTensor();
  if (call.plan.masks == Plan::Masks::Source) { // of masked_scatter_
    return arguments[2].toTensor().numel() < self.numel();
  }
  const auto indices = arguments[1].toListRef();
  return std::any_of(indices.begin(), indices.end(), is_mask) &&
      !fits_every_count(self, arguments[1], arguments[2].toTensor());
}

class OperatorTask final : public Task {
 public:
  // The results were made by the shapes of `info`; there is none for an operator that returns nothing.
  OperatorTask(const Call& call, const std::vector<at::Tensor>& results,
      std::shared_ptr<const CallInfo> info)
      : Task(call.plan.name.c_str()),
        plan_(call.plan),
        stack_(host_arguments(call)),
        info_(std::move(info)),
        // Variants with `out=` of some kernels, as of batch norms, write wrong numbers to strides
        // that they do not expect.
        writes_results_(call.plan.out_variant && !info_->differs_from_meta),
        target_(writes_results_ ? *call.plan.out_variant : call.plan.op) {
    const auto& schema = call.plan.op.schema();
    for (size_t nth = 0; nth < call.arguments.size(); nth++) {
      const bool writes = is_written(call, nth);
      if (schema.arguments()[nth].is_out() && call.arguments[nth].isTensor()) {
        outs_.push_back(
            Out{stack_[nth].toTensor(), at::DimVector(call.arguments[nth].toTensor().strides())});
      }
      for_each_tensor(call.arguments[nth], [&](const at::Tensor& tensor) {
        if (is_ours(tensor)) {
          uses(tensor, writes);
        }
      });
    }
    for (const auto& result : results) {
      if (result.defined()) {
        uses(result, true);
      }
      addresses_.push_back(result.defined() ? result.mutable_data_ptr() : nullptr);
      if (writes_results_) {
        outs_.push_back(Out{host_alias(result), at::DimVector(result.strides())});
        stack_.emplace_back(outs_.back().alias);
      }
    }
    if (call.plan.generator) {
      generator_ = call.plan.generator;
      seed_ = draw_task_seed(given_generator(call), call.device.index());
    }
  }

  c10::ArrayRef<c10::Warning> issued_warnings() const override {
    return info_ ? c10::ArrayRef<c10::Warning>(info_->warnings) : c10::ArrayRef<c10::Warning>();
  }

  void run() override {
    TORCH_CHECK(!plan_.is_over, "its library is gone, which its task needed: let it live until the ",
        "stream has been waited for");
    if (generator_) {
      stack_[*generator_] = at::detail::createCPUGenerator(seed_);
    }
    target_.callBoxed(stack_);
    for (const auto& out : outs_) {
      put_in_order(out);
    }
    for (size_t nth = 0; nth < addresses_.size(); nth++) {
      const auto& made = writes_results_ ? outs_[nth].alias : stack_[nth].toTensor();
      const auto& known = (*info_->shapes)[nth];
      if (known && made.defined() && !is_there(made)) {
        const auto& shape = *known;
        at::from_blob(addresses_[nth], shape.sizes, shape.strides, made.options().dtype(shape.dtype))
            .copy_(made);
      }
    }
  }

 private:
  // What the kernel writes, and in which order it is to be.
  struct Out {
    at::Tensor alias;
    at::DimVector strides;
  };

  // A kernel may write in an order of its own, as that of the argument that it reads.
  static void put_in_order(const Out& out) {
    if (out.alias.defined() && out.alias.strides() != c10::IntArrayRef(out.strides)) {
      const auto made = out.alias.clone();
      out.alias.unsafeGetTensorImpl()->set_sizes_and_strides(made.sizes(), out.strides);
      out.alias.copy_(made);
    }
  }

  // Whether the bytes of a result are where and what they are to be: a kernel may leave it to who
  // reads them to negate or conjugate.
  bool is_there(const at::Tensor& made) const {
    return writes_results_ && !made.is_conj() && !made.is_neg();
  }

  const Plan& plan_;
  Stack stack_;
  std::shared_ptr<const CallInfo> info_;
  // Whether the target writes the results itself; else they are copied to where they are to be.
  bool writes_results_;
  c10::OperatorHandle target_;
  c10::SmallVector<Out, 2> outs_;
  c10::SmallVector<void*, 2> addresses_;
  std::optional<size_t> generator_;
  uint64_t seed_ = 0;
};

std::vector<at::Tensor> make_results(const Call& call, const Shapes& shapes) {
  std::vector<at::Tensor> results;
  results.reserve(shapes->size());
  constexpr auto KEYS = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  for (const auto& shape : *shapes) {
    results.push_back(shape
        ? at::Tensor(at::detail::empty_strided_generic(
              shape->sizes, shape->strides, device_allocator(), KEYS, shape->dtype))
        : at::Tensor());
  }
  return results;
}

// Gives a tensor the strides of its new shape, if it has the memory for them.
void restride(const at::Tensor& tensor, const Shape& shape) {
  if (tensor.strides() == c10::IntArrayRef(shape.strides)) {
    return;
  }
  const auto needed = at::detail::computeStorageNbytes(
      shape.sizes, shape.strides, tensor.itemsize(), tensor.storage_offset());
  if (needed <= tensor.storage().nbytes()) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides);
  }
}

// What `out=` names takes the shape of the result, as on every device, but where it is an argument.
void resize_written(const Call& call, const CallInfo& info) {
  const auto& schema = call.plan.op.schema();
  for (size_t nth = 0; nth < call.plan.returned.size() && nth < info.shapes->size(); nth++) {
    const auto place = call.plan.returned[nth];
    const auto& shape = (*info.shapes)[nth];
    if (shape && schema.arguments()[place].is_out() && call.arguments[place].isTensor()) {
      const auto& out = call.arguments[place].toTensor();
      for (size_t other = 0; other < place; other++) {
        TORCH_CHECK(!call.arguments[other].isTensor() || !call.arguments[other].toTensor().is_same(out) ||
                out.sizes() == shape->sizes,
            "output with shape ", out.sizes(), " doesn't match the broadcast shape ",
            c10::IntArrayRef(shape->sizes));
      }
      const bool is_resized = at::native::resize_output(out, shape->sizes);
      if (is_resized || info.is_of_kernel) {
        restride(out, *shape);
      }
    }
  }
}

// The dispatcher's stack gets the results in place of the arguments.
void leave(Stack* stack, const Call& call, std::vector<c10::IValue>&& results) {
  torch::jit::drop(*stack, call.arguments.size());
  for (auto& result : results) {
    stack->push_back(std::move(result));
  }
}

std::vector<c10::IValue> written_results(const Call& call) {
  std::vector<c10::IValue> results;
  for (const auto place : call.plan.returned) {
    results.push_back(call.arguments[place]);
  }
  return results;
}

// False where the shapes are not known before the operator has run.
bool enqueue_operator(const Call& call, Stack* stack) {
  std::vector<at::Tensor> made;
  std::shared_ptr<const CallInfo> info;
  // What returns nothing has no shapes to ask for.
  if (call.plan.way == Plan::Way::Makes || !call.plan.returned.empty()) {
    info = call.plan.shapes.find(call.plan.op, call.arguments, call.overlap.whole);
    if (!info->shapes) {
      return false;
    }
    for (const auto& warning : info->warnings) {
      c10::warn(warning);
    }
    if (call.plan.way == Plan::Way::Makes) {
      made = make_results(call, *info->shapes);
    } else {
      resize_written(call, *info);
    }
  }
  auto task = std::make_unique<OperatorTask>(call, made, std::move(info));
  enqueue(HeldStream::current(call.device.index()), std::move(task));
  enqueued.fetch_add(1, std::memory_order_relaxed);
  std::vector<c10::IValue> results;
  if (call.plan.way == Plan::Way::Makes) {
    results.assign(std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
  } else {
    results = written_results(call);
  }
  leave(stack, call, std::move(results));
  return true;
}

// Calls the CPU's kernel on this thread, after the work of the stream.
void wait_and_call(const Call& call, Stack* stack) {
  const auto& schema = call.plan.op.schema();
  wait_for(HeldStream::current(call.device.index()), call.plan.name.c_str());
  Stack values = host_arguments(call);
  if (call.plan.generator) {
    const auto seed = draw_task_seed(given_generator(call), call.device.index());
    values[*call.plan.generator] = at::detail::createCPUGenerator(seed);
  }
  // An alias cannot grow: the kernel writes another tensor like that of `out=`, which is copied.
  // Where `out=` overlaps another argument, the kernel is to find that.
  std::vector<std::pair<at::Tensor, at::Tensor>> outs;
  const auto renewed = call.overlap.is_any() ? c10::ArrayRef<size_t>() : call.plan.written;
  for (const auto place : renewed) {
    if (schema.arguments()[place].is_out() && call.arguments[place].isTensor()) {
      const auto& out = call.arguments[place].toTensor();
      outs.emplace_back(out,
          at::empty_strided(out.sizes(), out.strides(), out.options().device(c10::kCPU)));
      values[place] = outs.back().second;
    }
  }
  {
    const KernelState state;
    call.plan.op.callBoxed(values);
  }
  for (const auto& [out, made] : outs) {
    if (out.sizes() != made.sizes()) { // of which the kernel has warned
      out.resize_(made.sizes());
    }
    restride(out, *shape_of(made));
    out.copy_(made);
  }
  std::vector<c10::IValue> results;
  if (!call.plan.returned.empty()) {
    results = written_results(call);
  } else {
    for (const auto& value : values) {
      results.push_back(map_tensors(value, [&](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.to(call.device) : tensor;
      }));
    }
  }
  leave(stack, call, std::move(results));
}

} // namespace

void call_operator(const c10::OperatorHandle& op, Stack* stack) {
  auto& plan = plan_of(op);
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  TORCH_CHECK_NOT_IMPLEMENTED(plan.way != Plan::Way::Refused, "accelrt has no operator ",
      plan.name, ": there is no kernel of the CPU that a stream could run in its place");
  issue_kept_warnings();
  if (C10_UNLIKELY(plan.conversion && needs_conversion(plan.conversion, op, arguments))) {
    call_converted(plan.conversion, op, stack);
    return;
  }
  const Call call{plan, arguments, device_of(plan, arguments), overlap_of(plan, arguments)};
  const c10::DeviceGuard on_device(call.device);
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    if (is_written(call, nth)) {
      for_each_tensor(arguments[nth], own_memory);
    }
  }
  const bool waits = call.overlap.is_partial || plan.way == Plan::Way::Waits || depends_on_count(call);
  if (waits || !enqueue_operator(call, stack)) {
    wait_and_call(call, stack);
  }
}

void set_defers_counts(bool is_wanted) {
  defers_counts.store(is_wanted, std::memory_order_relaxed);
}

int64_t enqueued_count() {
  return enqueued.load(std::memory_order_relaxed);
}

} // namespace accelrt_torch
