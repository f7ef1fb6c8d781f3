#include "plan.hpp"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace accelrt_torch {
namespace {

using c10::FunctionSchema;
using c10::OperatorHandle;
using c10::TypeKind;

bool has_tag(const OperatorHandle& op, at::Tag tag) {
  const auto tags = op.getTags();
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

bool is_list_of_tensors(const c10::Argument& argument) {
  const auto list = argument.type()->cast<c10::ListType>();
  return list && list->getElementType()->kind() == TypeKind::TensorType;
}

// The operators that there are: those of a library go with it, and another may have the place.
class Operators {
 public:
  // Never destroyed: a thread may call operators while the process ends.
  static Operators& all() {
    static auto& operators = *new Operators;
    return operators;
  }

  void add(const OperatorHandle& op) {
    if (writes_results(op)) {
      const std::unique_lock<std::shared_mutex> writing(lock_);
      out_variants_[op.schema().name()].push_back(op);
    }
  }

  void remove(const OperatorHandle& op) {
    if (writes_results(op)) {
      const std::unique_lock<std::shared_mutex> writing(lock_);
      auto& variants = out_variants_[op.schema().name()];
      std::erase(variants, op);
    }
    forget(op);
  }

  // The variants that write their results, by the name that they share with others.
  std::vector<OperatorHandle> out_variants(const std::string& name) {
    const std::shared_lock<std::shared_mutex> reading(lock_);
    const auto place = out_variants_.find(name);
    return place == out_variants_.end() ? std::vector<OperatorHandle>() : place->second;
  }

  Plan& plan_of(const OperatorHandle& op) {
    {
      const std::shared_lock<std::shared_mutex> reading(lock_);
      const auto place = plans_.find(&op.schema());
      if (place != plans_.end()) {
        return *place->second;
      }
    }
    auto made = std::make_unique<Plan>(op);
    const std::unique_lock<std::shared_mutex> writing(lock_);
    return *plans_.try_emplace(&op.schema(), std::move(made)).first->second;
  }

  // The plan stays for the tasks that have it.
  void forget(const OperatorHandle& op) {
    const std::unique_lock<std::shared_mutex> writing(lock_);
    const auto place = plans_.find(&op.schema());
    if (place != plans_.end()) {
      place->second->is_over = true;
      place->second->shapes.clear();
      over_.push_back(std::move(place->second));
      plans_.erase(place);
    }
  }

 private:
  static bool writes_results(const OperatorHandle& op) {
    return !op.schema().arguments().empty() && op.schema().arguments().back().is_out();
  }

  std::shared_mutex lock_;
  std::unordered_map<std::string, std::vector<OperatorHandle>> out_variants_;
  // A schema stays where it is as long as its operator is there.
  std::unordered_map<const FunctionSchema*, std::unique_ptr<Plan>> plans_;
  std::vector<std::unique_ptr<Plan>> over_;
};

struct Listener final : c10::OpRegistrationListener {
  void onOperatorRegistered(const OperatorHandle& op) override {
    Operators::all().add(op);
  }

  void onOperatorDeregistered(const OperatorHandle& op) override {
    Operators::all().remove(op);
  }
};

// Whether a variant has the arguments of an operator, and one more for each result.
bool is_out_variant(const FunctionSchema& variant, const FunctionSchema& schema) {
  const auto& more = variant.arguments();
  const auto& arguments = schema.arguments();
  if (more.size() != arguments.size() + schema.returns().size()) {
    return false;
  }
  for (size_t nth = 0; nth < more.size(); nth++) {
    const bool fits = nth < arguments.size()
        ? more[nth].name() == arguments[nth].name() && *more[nth].type() == *arguments[nth].type()
        : more[nth].is_out() && more[nth].type()->kind() == TypeKind::TensorType;
    if (!fits) {
      return false;
    }
  }
  return true;
}

// The one with a kernel of the CPU's own: others copy what the operator itself returns.
std::optional<OperatorHandle> out_variant_of(const OperatorHandle& op) {
  for (const auto& variant : Operators::all().out_variants(op.schema().name())) {
    if (variant.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        is_out_variant(variant.schema(), op.schema())) {
      return variant;
    }
  }
  return std::nullopt;
}

bool is_index(const std::string& name) {
  static const std::array<const char*, 4> names = {
      "aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

// By name, as no schema says so. What indexes a tensor may be the host's, as on CUDA; the numbers
// of these optimisers' steps are always.
std::optional<size_t> host_tensors_at(const FunctionSchema& schema) {
  if (is_index(schema.name())) {
    return 1;
  }
  const auto scalars = schema.argumentIndexWithName("scalars");
  const bool are_tensors =
      scalars && schema.arguments()[*scalars].type()->kind() == TypeKind::TensorType;
  return are_tensors ? std::make_optional(static_cast<size_t>(*scalars)) : std::nullopt;
}

bool has_kernel(const OperatorHandle& op) {
  return op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Losses: their variants that write first make room for what is to be reduced, which memory of a
// device cannot, or take the result as large as that.
bool grows_its_result(const FunctionSchema& schema) {
  return schema.argumentIndexWithName("reduction").has_value();
}

// Meta says another type than that of the numbers that the CPU makes.
bool makes_quantized(const std::string& name) {
  return name.starts_with("aten::quantize_per_");
}

// These draw nothing on the CPU, whatever their tags say of other devices.
bool draws_nothing(const std::string& name) {
  return name == "aten::_scaled_dot_product_flash_attention_for_cpu";
}

// Meta's kernels say other shapes than those of the CPU's kernels.
bool is_shaped_by_the_cpu(const std::string& name) {
  static const std::array<const char*, 2> names = {
      "aten::_embedding_bag", "aten::_embedding_bag_forward_only"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What kernels of the CPU write beyond what their schemas say: the running statistics of a batch,
// while a network is trained.
void note_unsaid_writes(const FunctionSchema& schema, Plan& plan) {
  const bool updates = schema.name() == "aten::batch_norm_update_stats";
  if (!updates && schema.name() != "aten::native_batch_norm") {
    return;
  }
  for (const auto* name : {"running_mean", "running_var"}) {
    plan.written.push_back(static_cast<size_t>(*schema.argumentIndexWithName(name)));
  }
  if (!updates) {
    plan.written_when = static_cast<size_t>(*schema.argumentIndexWithName("training"));
  }
}

Plan::Masks masks_of(const std::string& name) {
  if (name == "aten::masked_scatter_" || name == "aten::masked_scatter") {
    return Plan::Masks::Source;
  }
  static const std::array<const char*, 3> puts = {
      "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"};
  return std::find(puts.begin(), puts.end(), name) != puts.end() ? Plan::Masks::Indices
                                                                : Plan::Masks::None;
}

// How the operator is enqueued. What it writes and returns is noted in the plan.
Plan::Way read_schema(const FunctionSchema& schema, Plan& plan) {
  const auto& arguments = schema.arguments();
  for (size_t nth = 0; nth < arguments.size(); nth++) {
    if (const auto* alias = arguments[nth].alias_info()) {
      if (!alias->isWrite()) {
        return Plan::Way::Refused; // a view, which no task can make
      }
      plan.written.push_back(nth);
    }
    if (arguments[nth].name() == "generator") {
      plan.generator = nth;
    }
  }
  size_t new_count = 0;
  for (const auto& result : schema.returns()) {
    const bool is_tensor = result.type()->kind() == TypeKind::TensorType;
    if (!is_tensor && !is_list_of_tensors(result)) {
      return Plan::Way::Waits; // a number
    }
    if (!result.alias_info()) {
      if (!is_tensor) {
        return Plan::Way::Waits; // a list of new ones
      }
      new_count += 1;
      continue;
    }
    const auto is_same = [&](size_t nth) {
      return arguments[nth].alias_info()->beforeSets() == result.alias_info()->beforeSets();
    };
    const auto place = std::find_if(plan.written.begin(), plan.written.end(), is_same);
    if (place == plan.written.end()) {
      return Plan::Way::Waits;
    }
    plan.returned.push_back(*place);
  }
  if (new_count > 0) {
    return plan.returned.empty() ? Plan::Way::Makes : Plan::Way::Waits;
  }
  return plan.written.empty() ? Plan::Way::Waits : Plan::Way::Writes;
}

} // namespace

Plan::Plan(const OperatorHandle& handle) : op(handle), name(toString(handle.operator_name())) {
  host_tensors_at = accelrt_torch::host_tensors_at(handle.schema());
  conversion = conversion_of(handle.schema().name());
  masks = masks_of(handle.schema().name());
  way = read_schema(handle.schema(), *this);
  note_unsaid_writes(handle.schema(), *this);
  if (way == Way::Makes && !grows_its_result(handle.schema())) {
    out_variant = out_variant_of(handle);
  }
  lacks_kernel = !has_kernel(target());
  // Random numbers that nothing seeds would differ from run to run.
  const bool draws_unseen = has_tag(handle, at::Tag::nondeterministic_seeded) && !generator &&
      !draws_nothing(handle.operator_name().name);
  if (lacks_kernel || draws_unseen || makes_quantized(handle.operator_name().name)) {
    way = Way::Refused;
  } else if (way != Way::Refused &&
      // Of an index the shape depends on data for masks alone, which Meta refuses.
      ((has_tag(handle, at::Tag::dynamic_output_shape) && !is_index(handle.operator_name().name)) ||
          has_tag(handle, at::Tag::data_dependent_output) ||
          is_shaped_by_the_cpu(handle.operator_name().name))) {
    way = Way::Waits;
  }
}

void watch_operators() {
  // Stays for ever: its end would be that of the listener.
  static const auto& listening = *new c10::RegistrationHandleRAII(
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>()));
  (void)listening;
}

Plan& plan_of(const OperatorHandle& op) {
  const auto* key = &op.schema();
  struct Known {
    const FunctionSchema* schema = nullptr;
    Plan* plan = nullptr;
  };
  thread_local std::array<Known, 256> known;
  auto& mine = known[(reinterpret_cast<uintptr_t>(key) >> 6) % known.size()];
  if (mine.schema != key || mine.plan->is_over) {
    mine = {key, &Operators::all().plan_of(op)};
  }
  if (mine.plan->lacks_kernel && has_kernel(op)) { // which a library has added since
    Operators::all().forget(op);
    mine.plan = &Operators::all().plan_of(op);
  }
  return *mine.plan;
}

} // namespace accelrt_torch
