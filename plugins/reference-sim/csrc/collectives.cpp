// `simccl`: a torch.distributed backend whose calls are work of the device.
//
// Each call is one task of the current stream; `Work::wait()` makes the stream wait, not the host.
// A failure is a failure of the device and surfaces where the host next waits for it.
//
// The bytes travel by gloo, between copies on the host. Copies, because gloo cannot be interrupted:
// after an abort it goes on until its own timeout, and must not write into memory that the device
// has given to somebody else by then.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config.h"
#include "device.h"
#include "tensors.h"

namespace dougong_sim {
namespace {

using c10d::Backend;
using c10d::OpType;
using c10d::Work;
using BackendPtr = c10::intrusive_ptr<Backend>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<Work>;
using std::chrono::milliseconds;

constexpr milliseconds kAbortTick{2};  // how long a waiting task takes to see an abort

// gloo's words under the two beginnings that `dougong_sim.errors` and other readers can rely on.
std::string translated(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (text.rfind("simccl: ", 0) == 0) {
    return text;
  }
  if (text.find("imed out") != std::string::npos) {
    return "simccl: timed out: " + text;
  }
  for (const char* word : {"eer", "onnection", "roken pipe"}) {
    if (text.find(word) != std::string::npos) {
      return "simccl: peer lost: " + text;
    }
  }
  return text;
}

// What the task of one call failed with; shared by the task and the Work. A task that never ran,
// because the device had failed before, failed with nothing of its own.
class Outcome {
 public:
  void fail(const std::string& message) {
    std::lock_guard lock(mutex_);
    message_ = message;
  }
  std::string message() {
    std::lock_guard lock(mutex_);
    return message_;
  }

 private:
  std::mutex mutex_;
  std::string message_;
};

class SimWork final : public Work {
 public:
  SimWork(OpType type, std::string name, c10::DeviceIndex index, Tensors outputs,
          std::shared_ptr<Outcome> outcome, bool is_captured)
      : Work(-1, type),
        name_(std::move(name)),
        index_(index),
        outputs_(std::move(outputs)),
        outcome_(std::move(outcome)),
        is_captured_(is_captured),
        event_(kDeviceType) {
    event_.record(current_stream(index));
  }

  bool wait(milliseconds) override {
    if (opType_ == OpType::BARRIER) {
      event_.synchronize();
    }
    if (!is_captured_ && event_.query()) {
      check_outcome();
    }
    event_.block(current_stream(index_));
    // Whoever polls this for long must not be who frees them: a free is work of the device, too.
    outputs_.clear();
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  bool isCompleted() override { return event_.query(); }
  std::vector<at::Tensor> result() override { return outputs_; }
  FuturePtr getFuture() override {
    // Complete at once, as the futures of devices are: who uses the value waits on its stream.
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()),
        std::vector<c10::Device>{c10::Device(kDeviceType, index_)});
    const c10::DeviceGuard guard(c10::Device(kDeviceType, index_));
    future->markCompleted(at::IValue(outputs_));
    return future;
  }

 private:
  // As the device would say it at the next wait.
  void check_outcome() const {
    const std::string message = outcome_->message();
    if (!message.empty()) {
      raise_device_error(
          ErrorCode::kFailed, "sim:" + std::to_string(static_cast<int>(index_)) + ": failure in " +
              name_ + ": " + message);
    }
  }

  const std::string name_;
  const c10::DeviceIndex index_;
  Tensors outputs_;
  const std::shared_ptr<Outcome> outcome_;
  const bool is_captured_;
  c10::Event event_;
};

// What all ranks must say alike before gloo may begin: it ends the process where sizes differ.
struct Terms {
  OpType type = OpType::UNKNOWN;
  int64_t num_elements = 0;
  int64_t root = -1;
  std::vector<int64_t> sends{};  // elements to each rank, where they differ by rank
  std::vector<int64_t> receives{};
};

// The part of a group that tasks use; they may outlive the backend object.
class Carrier {
 public:
  Carrier(BackendPtr gloo, int rank, int size)
      : gloo_(std::move(gloo)), rank_(rank), size_(size) {}
  ~Carrier() {
    // Its threads are joined when it goes, and one may hang: nobody waits for that.
    std::thread([gloo = std::move(gloo_)]() mutable { gloo.reset(); }).detach();
  }

  Backend& gloo() { return *gloo_; }
  void abort() { is_aborted_ = true; }
  void check_aborted() const {
    TORCH_CHECK(!is_aborted_, "simccl: peer lost: the process group was aborted");
  }

  // A thread waits for it in our place, since gloo's own wait cannot be interrupted.
  void finish(const WorkPtr& work) {
    auto done = std::make_shared<std::promise<void>>();
    std::thread([work, done] {
      const c10::InferenceMode inference(true);  // as in the task that made the tensors
      try {
        work->wait();
        done->set_value();
      } catch (...) {
        done->set_exception(std::current_exception());
      }
    }).detach();
    auto future = done->get_future();
    while (future.wait_for(kAbortTick) != std::future_status::ready) {
      check_aborted();
    }
    future.get();
  }

  void agree(const Terms& terms, at::ScalarType dtype) {
    std::vector<int64_t> mine{
        static_cast<int64_t>(terms.type), static_cast<int64_t>(dtype), terms.num_elements,
        terms.root};
    for (const auto* sizes : {&terms.sends, &terms.receives}) {
      for (int rank = 0; rank < size_; rank++) {
        mine.push_back(sizes->empty() ? -1 : (*sizes)[rank]);
      }
    }
    const auto width = static_cast<int64_t>(mine.size());
    at::Tensor given = at::tensor(mine, at::kLong);
    at::Tensor all = at::empty({size_ * width}, at::kLong);
    finish(gloo_->_allgather_base(all, given, {}));
    const int64_t* rows = all.const_data_ptr<int64_t>();
    for (int one = 0; one < size_; one++) {
      for (int other = 0; other < size_; other++) {
        check_terms(rows, width, one, other);
      }
    }
  }

 private:
  // All ranks look at all pairs, so that all of them fail where one must.
  void check_terms(const int64_t* rows, int64_t width, int one, int other) const {
    const int64_t* first = rows + one * width;
    const int64_t* second = rows + other * width;
    const bool is_same = std::equal(first, first + 4, second);
    const bool fits = first[4 + other] == second[4 + size_ + one];
    TORCH_CHECK(
        is_same && fits, "simccl: mismatched calls: rank ", one, " of the group calls ",
        text_of(first, other), ", rank ", other, " calls ", text_of(second, one));
  }
  std::string text_of(const int64_t* terms, int peer) const {
    std::string text = c10d::opTypeToString(static_cast<OpType>(terms[0])) + " of " +
        std::to_string(terms[2]) + " " + c10::toString(static_cast<at::ScalarType>(terms[1]));
    if (terms[3] >= 0) {
      text += " with root " + std::to_string(terms[3]);
    }
    if (terms[4] >= 0) {
      text += ", " + std::to_string(terms[4 + peer]) + " of them to and " +
          std::to_string(terms[4 + size_ + peer]) + " from the other";
    }
    return text;
  }

  BackendPtr gloo_;
  const int rank_;
  const int size_;
  std::atomic<bool> is_aborted_{false};
};

using CarrierPtr = std::shared_ptr<Carrier>;
using Carry = std::function<void(Carrier&, Tensors& inputs, Tensors& outputs)>;

Tensors views_of(const Tensors& tensors) {
  Tensors views;
  for (const auto& tensor : tensors) {
    views.push_back(host_view(tensor));
  }
  return views;
}

Tensors copies_of(const Tensors& views) {
  Tensors copies;
  for (const auto& view : views) {
    copies.push_back(view.clone());
  }
  return copies;
}

class SimBackend final : public Backend {
 public:
  SimBackend(BackendPtr gloo, int rank, int size)
      : Backend(rank, size), carrier_(std::make_shared<Carrier>(std::move(gloo), rank, size)) {
    check_mode();
  }

  const std::string getBackendName() const override { return "simccl"; }
  void setTimeout(milliseconds timeout) override { carrier_->gloo().setTimeout(timeout); }
  void abort() override { carrier_->abort(); }
  void shutdown() override {}  // what is queued still runs

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return launch(
        "c10d::allreduce", {OpType::ALLREDUCE, total(tensors)}, {}, tensors,
        [options](Carrier& carrier, Tensors&, Tensors& out) {
          carrier.finish(carrier.gloo().allreduce(out, options));
        });
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return launch(
        "c10d::broadcast", {OpType::BROADCAST, total(tensors), options.rootRank}, {}, tensors,
        [options](Carrier& carrier, Tensors&, Tensors& out) {
          carrier.finish(carrier.gloo().broadcast(out, options));
        });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return launch(
        "c10d::reduce", {OpType::REDUCE, total(tensors), options.rootRank}, {}, tensors,
        [options](Carrier& carrier, Tensors&, Tensors& out) {
          carrier.finish(carrier.gloo().reduce(out, options));
        });
  }
  WorkPtr allgather(
      std::vector<Tensors>& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& options) override {
    return launch(
        "c10d::allgather", {OpType::ALLGATHER, total(inputs)}, inputs, outputs.at(0),
        [options](Carrier& carrier, Tensors& in, Tensors& out) {
          std::vector<Tensors> parts{out};
          carrier.finish(carrier.gloo().allgather(parts, in, options));
        });
  }
  WorkPtr _allgather_base(
      at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    return launch(
        "c10d::_allgather_base", {OpType::_ALLGATHER_BASE, input.numel()}, {input}, {output},
        [options](Carrier& carrier, Tensors& in, Tensors& out) {
          carrier.finish(carrier.gloo()._allgather_base(out[0], in[0], options));
        });
  }
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return launch(
        "c10d::allgather_into_tensor_coalesced", {OpType::COALESCED, total(inputs)}, inputs,
        outputs, [options](Carrier& carrier, Tensors& in, Tensors& out) {
          for (size_t i = 0; i < in.size(); i++) {
            carrier.finish(carrier.gloo()._allgather_base(out[i], in[i], options));
          }
        });
  }
  WorkPtr reduce_scatter(
      Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ReduceScatterOptions& options) override {
    return launch(
        "c10d::reduce_scatter", {OpType::REDUCE_SCATTER, total(outputs)}, inputs.at(0), outputs,
        [options](Carrier& carrier, Tensors& in, Tensors& out) {
          std::vector<Tensors> parts{in};
          carrier.finish(carrier.gloo().reduce_scatter(out, parts, options));
        });
  }
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    return launch(
        "c10d::_reduce_scatter_base", {OpType::_REDUCE_SCATTER_BASE, output.numel()}, {input},
        {output}, [options](Carrier& carrier, Tensors& in, Tensors& out) {
          carrier.finish(carrier.gloo()._reduce_scatter_base(out[0], in[0], options));
        });
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    return launch(
        "c10d::reduce_scatter_tensor_coalesced", {OpType::COALESCED, total(outputs)}, inputs,
        outputs, [options](Carrier& carrier, Tensors& in, Tensors& out) {
          for (size_t i = 0; i < in.size(); i++) {
            carrier.finish(carrier.gloo()._reduce_scatter_base(out[i], in[i], options));
          }
        });
  }
  WorkPtr gather(
      std::vector<Tensors>& outputs, Tensors& inputs,
      const c10d::GatherOptions& options) override {
    return launch(
        "c10d::gather", {OpType::GATHER, total(inputs), options.rootRank}, inputs,
        outputs.empty() ? Tensors{} : outputs[0],
        [options](Carrier& carrier, Tensors& in, Tensors& out) {
          std::vector<Tensors> parts;
          if (!out.empty()) {
            parts.push_back(out);
          }
          carrier.finish(carrier.gloo().gather(parts, in, options));
        });
  }
  WorkPtr scatter(
      Tensors& outputs, std::vector<Tensors>& inputs,
      const c10d::ScatterOptions& options) override {
    return launch(
        "c10d::scatter", {OpType::SCATTER, total(outputs), options.rootRank},
        inputs.empty() ? Tensors{} : inputs[0], outputs,
        [options](Carrier& carrier, Tensors& in, Tensors& out) {
          std::vector<Tensors> parts;
          if (!in.empty()) {
            parts.push_back(in);
          }
          carrier.finish(carrier.gloo().scatter(out, parts, options));
        });
  }
  WorkPtr alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
      std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& options) override {
    const Terms terms{
        OpType::ALLTOALL_BASE, 0, -1, elements_per_rank(input, input_rows),
        elements_per_rank(output, output_rows)};
    return launch(
        "c10d::alltoall_base", terms, {input}, {output},
        [options, output_rows, input_rows](Carrier& carrier, Tensors& in, Tensors& out) mutable {
          carrier.finish(
              carrier.gloo().alltoall_base(out[0], in[0], output_rows, input_rows, options));
        });
  }
  WorkPtr alltoall(
      Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    Terms terms{OpType::ALLTOALL};
    for (const auto& input : inputs) {
      terms.sends.push_back(input.numel());
    }
    for (const auto& output : outputs) {
      terms.receives.push_back(output.numel());
    }
    return launch(
        "c10d::alltoall", terms, inputs, outputs,
        [options, terms](Carrier& carrier, Tensors& in, Tensors& out) mutable {
          Tensors flat;
          int64_t taken = 0;
          for (const auto& tensor : in) {
            flat.push_back(tensor.reshape({-1}));
          }
          for (const auto& tensor : out) {
            taken += tensor.numel();
          }
          at::Tensor given = at::cat(flat);
          at::Tensor received = at::empty({taken}, out[0].options());
          carrier.finish(carrier.gloo().alltoall_base(
              received, given, terms.receives, terms.sends, options));
          int64_t at = 0;
          for (auto& tensor : out) {
            tensor.copy_(received.narrow(0, at, tensor.numel()).view(tensor.sizes()));
            at += tensor.numel();
          }
        });
  }
  // Returns when gloo has the bytes: a stream that waited for the other rank to take them could
  // not go on to receive what that rank sends first.
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return launch_pair("c10d::send", OpType::SEND, tensors, {},
        [to, tag](Carrier& carrier, Tensors& in, Tensors&) {
          const WorkPtr work = carrier.gloo().send(in, to, tag);
          std::thread([work] {
            const c10::InferenceMode inference(true);
            try {
              work->wait();
            } catch (const std::exception&) {
              return;  // the next call of the group meets the same broken connection
            }
          }).detach();
        });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return launch_pair("c10d::recv", OpType::RECV, {}, tensors,
        [from, tag](Carrier& carrier, Tensors&, Tensors& out) {
          carrier.finish(carrier.gloo().recv(out, from, tag));
        });
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return launch("c10d::barrier", {OpType::BARRIER}, {}, {},
        [options](Carrier& carrier, Tensors&, Tensors&) {
          carrier.finish(carrier.gloo().barrier(options));
        });
  }

 private:
  static int64_t total(const Tensors& tensors) {
    int64_t elements = 0;
    for (const auto& tensor : tensors) {
      elements += tensor.numel();
    }
    return elements;
  }

  std::vector<int64_t> elements_per_rank(
      const at::Tensor& tensor, const std::vector<int64_t>& rows) const {
    if (rows.empty()) {
      return std::vector<int64_t>(size_, tensor.numel() / size_);
    }
    const int64_t per_row = tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
    std::vector<int64_t> elements;
    for (const int64_t count : rows) {
      elements.push_back(count * per_row);
    }
    return elements;
  }

  // Raises in lazy mode: there, work runs when this process waits for it, so two ranks that wait
  // for something else never meet.
  void check_mode() const {
    TORCH_CHECK(
        size_ == 1 || config().mode != Mode::kLazy,
        "simccl: a group of ", size_, " ranks needs devices that work by themselves, and in lazy "
        "mode they do so only while somebody waits; use SIM_MODE=thread or SIM_MODE=eager");
  }

  // The device that all tensors are on; the current one if there are none.
  Device& check_tensors(const char* name, const Tensors& inputs, const Tensors& outputs) const {
    c10::DeviceIndex index = -1;
    for (const auto* tensors : {&inputs, &outputs}) {
      for (const auto& tensor : *tensors) {
        TORCH_CHECK(
            is_sim(tensor), "simccl: a tensor on ", tensor.device(), " leaked into ", name);
        TORCH_CHECK(tensor.is_contiguous(), "simccl: ", name, " takes contiguous tensors");
        TORCH_CHECK(
            index < 0 || index == tensor.get_device(), "simccl: ", name,
            " got tensors of several devices");
        index = tensor.get_device();
      }
    }
    Device& owner = device(index < 0 ? current_device() : index);
    ensure_context(owner);
    return owner;
  }

  WorkPtr launch(
      const char* name, const Terms& terms, const Tensors& inputs, const Tensors& outputs,
      Carry carry) {
    const at::ScalarType dtype = !inputs.empty() ? inputs[0].scalar_type()
        : !outputs.empty()                       ? outputs[0].scalar_type()
                                                 : at::kByte;
    return enqueue(
        name, terms.type, inputs, outputs,
        [terms, dtype, carry = std::move(carry)](Carrier& carrier, Tensors& in, Tensors& out) {
          carrier.agree(terms, dtype);
          carry(carrier, in, out);
        });
  }
  WorkPtr launch_pair(
      const char* name, OpType type, const Tensors& inputs, const Tensors& outputs, Carry carry) {
    return enqueue(name, type, inputs, outputs, std::move(carry));
  }

  WorkPtr enqueue(
      const char* name, OpType type, const Tensors& inputs, const Tensors& outputs, Carry carry) {
    carrier_->check_aborted();
    check_mode();
    Device& owner = check_tensors(name, inputs, outputs);
    const c10::DeviceGuard guard(c10::Device(kDeviceType, owner.index));
    auto outcome = std::make_shared<Outcome>();
    submit(
        current_queue(owner),
        make_task(
            name, true,
            [&owner, name = std::string(name), carrier = carrier_, outcome,
             from = views_of(inputs), to = views_of(outputs), carry = std::move(carry)] {
              try {
                const auto fault = owner.faults.take("peer_dead", name);
                TORCH_CHECK(!fault, "simccl: peer lost: injected: ", fault->message);
                carrier->check_aborted();
                Tensors in = copies_of(from);
                Tensors out = copies_of(to);
                carry(*carrier, in, out);
                for (size_t i = 0; i < to.size(); i++) {
                  to[i].copy_(out[i]);
                }
              } catch (const std::exception& error) {
                const std::string message = translated(error);
                outcome->fail(message);
                throw std::runtime_error(message);  // makes the device fail
              }
            }));
    return c10::make_intrusive<SimWork>(
        type, name, owner.index, outputs, outcome, current_capture() != nullptr);
  }

  const CarrierPtr carrier_;
};

ProcessGroupPtr make_process_group(const ProcessGroupPtr& carrier, int64_t rank, int64_t size) {
  const BackendPtr gloo = carrier->getBackend(c10::DeviceType::CPU);
  auto group =
      c10::make_intrusive<c10d::ProcessGroup>(static_cast<int>(rank), static_cast<int>(size));
  group->setBackend(
      kDeviceType, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::make_intrusive<SimBackend>(gloo, static_cast<int>(rank), static_cast<int>(size)));
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(dougong_sim, library) {
  library.def(
      "make_process_group(__torch__.torch.classes.c10d.ProcessGroup carrier, int rank, int size)"
      " -> __torch__.torch.classes.c10d.ProcessGroup",
      &make_process_group);
}

}  // namespace dougong_sim
