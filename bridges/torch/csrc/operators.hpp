// Every operator without a kernel of its own: the CPU's kernel as a task of the current stream.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace accelrt_torch {

// Finds the shapes of the results, allocates them, and enqueues; or waits for the stream and calls
// the CPU's kernel, where the results depend on data.
void call_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// How many operators were enqueued.
int64_t enqueued_count();

// Whether a mask whose count of true elements does not fit the values fails the task, not the call.
void set_defers_counts(bool is_wanted);

} // namespace accelrt_torch
