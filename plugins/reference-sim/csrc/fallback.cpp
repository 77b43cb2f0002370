// Every operator that has no native implementation here: checked, shaped, queued.
//
// The kernel is torch's own for the CPU, run later on views of the device's memory. Before that
// this file does what a backend does at the call: look at where the tensors are, refuse what the
// device does not have, find out the shapes of the results, and make them.
#include <ATen/native/CPUFallback.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "config.h"
#include "generator.h"
#include "host_waits.h"
#include "operator_call.h"
#include "tensors.h"

namespace dougong_sim {
namespace {

// A Python number in the clothes of a tensor: it is in the launch, not in anybody's memory.
bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// Which device the call is for. Tensors of two devices, and CPU tensors that are not scalars, are
// refused by the name of the argument. (CUDA copies a CPU index tensor silently; this is stricter.)
void choose_device(Call& call) {
  for (size_t i = 0; i < call.info.num_arguments; i++) {
    visit_tensors(call.arguments[i], [&](const at::Tensor& tensor) {
      if (is_sim(tensor)) {
        TORCH_CHECK(
            call.index < 0 || call.index == tensor.get_device(),
            "sim: tensors on different devices (sim:", static_cast<int>(call.index),
            " and sim:", static_cast<int>(tensor.get_device()), ") in ", call.info.name,
            " (argument '", call.op.schema().arguments()[i].name(), "')");
        call.index = tensor.get_device();
        return;
      }
      if (is_number(tensor)) {
        return;
      }
      count("cpu_argument:" + call.info.name);
      TORCH_CHECK(
          tensor.dim() == 0,
          "sim: tensor on ", tensor.device(), " passed to ", call.info.name, " (argument '",
          call.op.schema().arguments()[i].name(), "', shape ", tensor.sizes(),
          ") whose other tensors are on a sim device; move it there first");
    });
    const c10::IValue& value = call.arguments[i];
    if (call.index < 0 && value.isDevice() && value.toDevice().type() == kDeviceType) {
      const c10::Device asked = value.toDevice();
      call.index = asked.has_index() ? asked.index() : current_device();
    }
  }
  if (call.index < 0) {
    call.index = current_device();
  }
}

// True: the call was served by the CPU, visibly in the counters. Raises in strict mode.
bool is_left_to_cpu(const Call& call, Stack* stack) {
  if (call.info.is_declared) {
    return false;
  }
  count("undeclared:" + call.info.name);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !config().is_strict,
      call.info.name,
      " is not implemented for device 'sim' (called as ",
      c10::toString(call.op.operator_name()),
      "). It is not in the list of operators that the device declares, and in strict mode nothing "
      "falls back to the CPU.");
  count("silent_fallback:" + call.info.name);
  at::native::cpu_fallback(call.op, stack);
  return true;
}

// A generator for the kernel, if the operator draws random numbers.
std::function<at::Generator()> draws_of(const Call& call) {
  if (call.info.generator_argument < 0) {
    return nullptr;
  }
  const auto& value = call.arguments[static_cast<size_t>(call.info.generator_argument)];
  const at::Generator generator =
      value.isGenerator() ? value.toGenerator() : default_generator(call.index);
  TORCH_CHECK(
      generator.device().type() == kDeviceType,
      "sim: expected a generator of device 'sim' in ", call.info.name, ", got one of '",
      generator.device(), "'");
  return as_sim(generator).next_launch();
}

// The arguments as the CPU kernel will see them.
Stack host_arguments(const Call& call) {
  Stack arguments = call.arguments;
  for (c10::IValue& value : arguments) {
    map_tensors(value, [](const at::Tensor& tensor) {
      if (is_sim(tensor)) {
        return host_view(tensor);
      }
      return is_number(tensor) ? tensor : tensor.detach().clone();
    });
    if (value.isDevice()) {
      value = c10::Device(at::kCPU);
    }
  }
  return arguments;
}

// Runs the CPU kernel and leaves its results on the stack.
void run_kernel(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    const std::function<at::Generator()>& draws,
    Stack& stack) {
  if (draws) {
    stack[static_cast<size_t>(info.generator_argument)] = draws();
  }
  op.callBoxed(&stack);
}

// out= tensors that torch's structured wrappers have already shaped. Asking for shapes again costs
// up to fifty times the rest of the call; the kernel compares them when it has run. Empty ones may
// be there to be resized, and nobody can tell that from a result without elements.
bool has_shaped_outs(const Call& call) {
  if (!call.info.writes_only_outs) {
    return false;
  }
  for (const size_t i : call.info.written_arguments) {
    const at::Tensor& out = call.arguments[i].toTensor();
    if (!out.defined() || out.numel() == 0 || out.dim() == 0) {
      return false;
    }
  }
  return true;
}

// Results that are arguments stay what they are; for the others `make` gets the shape or the value.
template <class Make>
Stack results_from(const Call& call, Stack values, Make make) {
  for (size_t r = 0; r < call.info.num_returns; r++) {
    if (const int argument = call.info.returned_argument[r]; argument >= 0) {
      values[r] = call.arguments[static_cast<size_t>(argument)];
    } else {
      map_tensors(values[r], make);
    }
  }
  return values;
}

void set_output(Task& task, const at::Tensor& host) {
  if (task.output == nullptr && host.numel() > 0) {
    task.output = host.mutable_data_ptr();
    task.output_bytes = host.element_size();
  }
}

// For results whose shape only the kernel knows: the host waits, runs it, and puts the values
// back into the device's order.
Stack run_now(const Call& call, Queue& queue) {
  note_implicit_sync(call.info.name);
  synchronize(queue);
  Stack values = host_arguments(call);
  {
    const c10::InferenceMode inference(true);
    const c10::impl::ExcludeDispatchKeyGuard no_python(python_keys());
    run_kernel(call.op, call.info, draws_of(call), values);
  }
  return results_from(call, std::move(values), [&](const at::Tensor& value) {
    at::Tensor made = empty_on_device(value.sizes(), value.strides(), value.scalar_type());
    const at::Tensor target = host_view(made);
    Task task{call.info.name, true, [target, value] { target.copy_(value); }};
    set_output(task, target);
    submit(queue, std::make_shared<const Task>(std::move(task)));
    return made;
  });
}

// The results go to tensors made now, and the kernel is queued.
Stack run_later(const Call& call, Stack shapes, Queue& queue) {
  Task task{call.info.name, true, {}};
  std::vector<at::Tensor> targets;  // in the order of the kernel's new results
  Stack results = results_from(call, std::move(shapes), [&](const at::Tensor& shape) {
    at::Tensor made = empty_on_device(shape.sizes(), shape.strides(), shape.scalar_type());
    targets.push_back(host_view(made));
    set_output(task, targets.back());
    return made;
  });
  const Stack arguments = host_arguments(call);
  for (const size_t i : call.info.written_arguments) {
    visit_tensors(arguments[i], [&](const at::Tensor& written) { set_output(task, written); });
  }
  task.run = [op = call.op, &info = call.info, draws = draws_of(call), arguments, targets] {
    Stack stack = arguments;
    run_kernel(op, info, draws, stack);
    size_t next = 0;
    for (size_t r = 0; r < info.num_returns; r++) {
      if (info.returned_argument[r] < 0) {
        visit_tensors(stack[r], [&](const at::Tensor& value) { targets[next++].copy_(value); });
      }
    }
  };
  submit(queue, std::make_shared<const Task>(std::move(task)));
  return results;
}

// The kernel writes straight into its out= tensors.
Stack run_into_outs(const Call& call, Queue& queue) {
  Task task{call.info.name, true, {}};
  const Stack arguments = host_arguments(call);
  for (const size_t i : call.info.written_arguments) {
    set_output(task, arguments[i].toTensor());
  }
  task.run = [op = call.op, &info = call.info, draws = draws_of(call), arguments] {
    std::vector<std::vector<int64_t>> shapes;
    for (const size_t i : info.written_arguments) {
      shapes.push_back(arguments[i].toTensor().sizes().vec());
    }
    Stack stack = arguments;
    run_kernel(op, info, draws, stack);
    for (size_t k = 0; k < shapes.size(); k++) {
      const at::Tensor& out = arguments[info.written_arguments[k]].toTensor();
      TORCH_CHECK(out.sizes() == shapes[k], "an out= tensor had the wrong shape");
    }
  };
  submit(queue, std::make_shared<const Task>(std::move(task)));
  return results_from(call, Stack(call.info.num_returns), [](const at::Tensor& t) { return t; });
}

void run_operator(const c10::OperatorHandle& op, Stack* stack) {
  Call call(op, *stack);
  call.info.calls++;
  choose_device(call);
  if (is_left_to_cpu(call, stack)) {
    return;
  }
  TORCH_CHECK(
      !call.info.returns_view, "sim: ", call.info.name, " is a view and has no implementation");
  Device& target = device(call.index);
  const c10::DeviceGuard guard(c10::Device(kDeviceType, call.index));
  ensure_context(target);
  Queue& queue = current_queue(target);
  Stack results;
  if (has_shaped_outs(call)) {
    results = run_into_outs(call, queue);
  } else if (auto shapes = shapes_of_results(call)) {
    results = run_later(call, std::move(*shapes), queue);
  } else {
    results = run_now(call, queue);
  }
  torch::jit::drop(*stack, call.info.num_arguments);
  for (c10::IValue& result : results) {
    stack->push_back(std::move(result));
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

// Autocast inserts conversions above the backend; with none to insert, calls pass through.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace dougong_sim
