// Copies within a device, between devices, and to and from the host.
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "counters.h"
#include "host_waits.h"
#include "tensors.h"

namespace dougong_sim {
namespace {

// A host tensor given to it stays alive until the task is gone, as the host allocators of real
// devices keep a block until the copy has passed.
TaskPtr copy_task(const char* name, at::Tensor to, at::Tensor from) {
  Task task{name, true, {}};
  task.output = to.mutable_data_ptr();
  task.output_bytes = to.numel() == 0 ? 0 : to.element_size();
  task.run = [to, from = std::move(from)] { to.copy_(from); };
  return std::make_shared<const Task>(std::move(task));
}

void copy_within(const at::Tensor& from, const at::Tensor& to) {
  const c10::DeviceGuard guard(to.device());
  Device& target = device(to.get_device());
  ensure_context(target);
  submit(current_queue(target), copy_task("aten::copy_", host_view(to), host_view(from)));
}

// Runs on the source's stream, after what the target's stream has queued and before what follows
// there: both streams are as ordered as if they were one.
void copy_across(const at::Tensor& from, const at::Tensor& to) {
  static Counter& copies = counter("p2p");
  copies++;
  Device& source = device(from.get_device());
  Device& target = device(to.get_device());
  ensure_context(source);
  ensure_context(target);
  Queue& from_queue = current_queue(source);
  Queue& to_queue = current_queue(target);
  const uint64_t before = to_queue.submitted;
  submit(from_queue, make_task("event_wait", false, [&to_queue, before] {
    wait_for(to_queue, before);
  }));
  const uint64_t copied =
      submit(from_queue, copy_task("aten::copy_", host_view(to), host_view(from)));
  submit(to_queue, make_task("event_wait", false, [&from_queue, copied] {
    wait_for(from_queue, copied);
  }));
}

// From pinned memory without blocking, the bytes are read when the copy runs. From other memory
// they are staged: read now. A copy that blocks waits for the stream, as torch promises.
void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool is_non_blocking) {
  static Counter& copies = counter("h2d");
  copies++;
  const c10::DeviceGuard guard(to.device());
  Device& target = device(to.get_device());
  ensure_context(target);
  if (!is_non_blocking) {
    note_implicit_sync("h2d_copy");
  }
  const bool is_staged = !from.is_pinned();
  if (is_staged) {
    refuse_in_capture("a copy from ordinary host memory");
  }
  Queue& queue = current_queue(target);
  const at::Tensor source = is_staged ? from.detach().clone() : from.detach();
  submit(queue, copy_task("aten::copy_h2d", host_view(to), source));
  if (!is_non_blocking) {
    synchronize(queue);
  }
}

// To pinned memory without blocking, the bytes arrive when the copy runs. All else waits.
void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool is_non_blocking) {
  static Counter& copies = counter("d2h");
  copies++;
  const c10::DeviceGuard guard(from.device());
  Device& source = device(from.get_device());
  ensure_context(source);
  const bool is_asynchronous = is_non_blocking && to.is_pinned();
  if (!is_asynchronous) {
    note_implicit_sync("d2h_copy");
  }
  Queue& queue = current_queue(source);
  submit(queue, copy_task("aten::copy_d2h", to.detach(), host_view(from)));
  if (!is_asynchronous) {
    synchronize(queue);
  }
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool is_non_blocking) {
  static Counter& calls = counter("op:aten::copy_");
  calls++;
  if (!is_sim(from)) {
    copy_to_device(from, to, is_non_blocking);
  } else if (!is_sim(to)) {
    copy_to_host(from, to, is_non_blocking);
  } else if (from.device() != to.device()) {
    copy_across(from, to);
  } else {
    copy_within(from, to);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  resize_on_device(to, from.sizes());
  return copy_from(from, to, false);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
}

}  // namespace
}  // namespace dougong_sim
