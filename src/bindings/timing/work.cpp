#include "bindings/timing/work.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "bindings/python/callbacks.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/timing/sample.hpp"
#include "bindings/timing/scope.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using namespace py::literals;
using timing::MemoryNote;
using timing::MemoryUse;
using timing::Sample;
using timing::SampleRef;
using timing::SampleStatus;
using timing::SpanDetails;

namespace {

std::string wrong_amount(PyObject* value, const char* argument) {
  return std::string(argument) + ": expected a finite number >= 0 or None, got " +
         py::repr(value).cast<std::string>();
}

MemoryUse memory_from(const py::tuple& values) {
  return {values[0].cast<double>(), values[1].cast<double>(), values[2].cast<double>(),
          static_cast<MemoryNote>(values[3].cast<int>())};
}

MemoryUse read_again(PyObject* reading) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  if (reading != Py_None) {
    PyObject* result = PyObject_CallOneArg(callback(Callback::kEndMemory), reading);
    if (result != nullptr) return memory_from(py::reinterpret_steal<py::tuple>(result));
    ignore_exception();
  }
  return {kUnknown, kUnknown, kUnknown, MemoryNote::kRefused};
}

// Reads the allocators before a scope is entered: an object for end_memory(). Only an interrupt
// comes out of it.
PyObject* begin_memory(py::handle stream) {
  PyObject* reading = PyObject_CallOneArg(callback(Callback::kBeginMemory), stream.ptr());
  if (reading != nullptr) return reading;
  ignore_exception();
  return Py_NewRef(Py_None);
}

// Reads them again and notes the difference on the sample and in the statistics.
void end_memory(Sample& sample, PyObject* reading) {
  MemoryUse use = read_again(reading);
  if (sample.clock != timing::kCudaClock) use.note = MemoryNote::kOtherClock;
  const bool is_read = use.note == MemoryNote::kNone || use.note == MemoryNote::kSum;
  if (is_read && sample.load_status() == SampleStatus::kCaptured) use.note = MemoryNote::kCapture;
  SpanDetails& details = *sample.details;  // made at the entry
  details.memory = use;
  details.memory_read.store(true, std::memory_order_release);
  const SampleStatus status = sample.load_status();
  const bool is_measured = status == SampleStatus::kPending || status == SampleStatus::kDone;
  if (is_measured && !sample.body_raised) timing::statistics::add_memory(sample, use);
}

}  // namespace

std::optional<double> amount_of(PyObject* value, const char* argument) {
  if (value == Py_None) return std::nullopt;
  const double amount = PyFloat_AsDouble(value);
  bool is_number = PyBool_Check(value) == 0;
  if (PyErr_Occurred() != nullptr) {
    is_number = PyErr_ExceptionMatches(PyExc_TypeError) == 0;
    if (is_number && PyErr_ExceptionMatches(PyExc_OverflowError) == 0) {
      throw py::error_already_set();
    }
    PyErr_Clear();
  }
  if (!is_number) throw py::type_error(wrong_amount(value, argument));
  if (!(amount >= 0.0) || std::isinf(amount)) {  // or -1, for what is too large
    throw py::value_error(wrong_amount(value, argument));
  }
  return amount;
}

py::object memory_of(const Sample& sample) {
  const SpanDetails* details = sample.details.get();
  if (details == nullptr || !details->memory_read.load(std::memory_order_acquire) ||
      details->memory.note == MemoryNote::kOtherClock) {
    return py::none();
  }
  const MemoryUse& use = details->memory;
  return owned(PyObject_CallFunction(callback(Callback::kMemoryUse), "dddi", use.peak, use.absolute,
                                     use.change, static_cast<int>(use.note)));
}

py::tuple details_state(const Sample& sample) {
  const SpanDetails* details = sample.details.get();
  if (details == nullptr) return py::tuple();
  py::object memory = py::none();
  if (details->memory_read.load(std::memory_order_acquire)) {
    const MemoryUse& use = details->memory;
    memory = py::make_tuple(use.peak, use.absolute, use.change, static_cast<int>(use.note));
  }
  return py::make_tuple(details->flops, details->nbytes, memory);
}

void restore_details(Sample& sample, const py::tuple& state) {
  if (state.empty()) return;
  SpanDetails& details = timing::details_of(sample);
  details.flops = state[0].cast<double>();
  details.nbytes = state[1].cast<double>();
  if (state[2].is_none()) return;
  details.memory = memory_from(state[2].cast<py::tuple>());
  details.wants_memory = true;
  details.memory_read.store(true, std::memory_order_release);
}

py::object work_dict(const timing::WorkSums& sums) {
  if (sums.count == 0) return py::none();
  return py::dict("count"_a = sums.count, "flops_count"_a = sums.flops_count,
                  "flops"_a = sums.flops, "flops_ms"_a = sums.flops_ms,
                  "bytes_count"_a = sums.bytes_count, "nbytes"_a = sums.nbytes,
                  "bytes_ms"_a = sums.bytes_ms);
}

py::object memory_dict(const timing::MemorySums& sums) {
  if (!sums.asked()) return py::none();
  return py::dict("count"_a = sums.count, "peak"_a = sums.peak, "absolute"_a = sums.absolute,
                  "change"_a = sums.change, "note"_a = static_cast<int>(sums.note));
}

// The work of one entry is on the sample before the clock starts, the allocators are read outside
// of it. The plain entries of other scopes do not come here.
PyObject* Scope::enter_otherwise() {
  if (!is_enabled()) {
    if (open_in_.empty()) {
      ++unmeasured_;
    } else {
      enter_disabled();
    }
    return disabled_sample();
  }
  if (budget::is_on) return enter_within_budget();
  return enter_measured({});
}

PyObject* Scope::enter_measured(timing::Visit visit) {
  return enter_measured(SampleRef(timing::make_sample()), visit);
}

PyObject* Scope::enter_measured(SampleRef sample, timing::Visit visit) {
  if (!options_.memory && !options_.flops && !options_.nbytes) {
    return open_sample(std::move(sample), visit);
  }
  Sample* raw = sample.get();
  SpanDetails& details = timing::details_of(*raw);
  details.flops = options_.flops.value_or(-1.0);
  details.nbytes = options_.nbytes.value_or(-1.0);
  details.wants_memory = options_.memory;
  if (options_.memory) {
    const bool may_be_cuda = choice_ == ClockChoice::kAuto || choice_ == ClockChoice::kCuda;
    PyObject* reading = may_be_cuda ? begin_memory(options_.stream) : Py_NewRef(Py_None);
    held_.push_back({raw, reading, true});
  }
  return or_undo([&] { return open_sample(std::move(sample), visit); },
                 [&] {
                   while (const std::optional<Held> held = take_held(*raw)) Py_DECREF(held->object);
                 });
}

std::optional<Scope::Held> Scope::take_held(const Sample& sample) {
  const auto found = std::find_if(held_.rbegin(), held_.rend(),
                                  [&sample](const Held& each) { return each.sample == &sample; });
  if (found == held_.rend()) return std::nullopt;
  const Held held = *found;
  held_.erase(std::next(found).base());
  return held;
}

// Runs Python code, which may enter and leave this scope.
void Scope::let_go_of_held(Sample& sample) {
  while (const std::optional<Held> held = take_held(sample)) {
    try {
      if (held->is_reading) end_memory(sample, held->object);
    } catch (const std::exception&) {  // an interrupt
      Py_DECREF(held->object);
      let_go_of_held(sample);
      throw;
    }
    Py_DECREF(held->object);
  }
}

}  // namespace gpuprof::bindings
