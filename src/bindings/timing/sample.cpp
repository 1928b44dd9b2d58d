#include "bindings/timing/sample.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "bindings/bind.hpp"
#include "bindings/python/callbacks.hpp"
#include "bindings/python/errors.hpp"
#include "bindings/python/gil.hpp"
#include "bindings/python/objects.hpp"
#include "bindings/timing/listeners.hpp"
#include "bindings/timing/work.hpp"
#include "timing/device.hpp"

namespace gpuprof::bindings {

namespace py = pybind11;
using timing::Sample;
using timing::SampleRef;
using timing::SampleStatus;
using timing::SpanDetails;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct SampleObject {
  PyObject_HEAD Sample* sample;
};

PyTypeObject* sample_type = nullptr;
PyObject* disabled_object = nullptr;
PyObject* left_out_object = nullptr;

// Freed objects waiting to be used again. Guarded by the interpreter lock.
std::array<PyObject*, 256> free_list;
std::size_t free_count = 0;

Sample& sample_of(PyObject* self) noexcept {
  return *reinterpret_cast<SampleObject*>(self)->sample;
}

void dealloc_sample(PyObject* self) {
  timing::drop_reference(&sample_of(self));
#ifndef Py_GIL_DISABLED
  if (free_count < free_list.size()) {
    free_list[free_count++] = self;
    Py_DECREF(Py_TYPE(self));
    return;
  }
#endif
  free_object(self);
}

[[noreturn]] void throw_unmeasured(const Sample& sample) {
  switch (sample.load_status()) {
    case SampleStatus::kOpen:
      throw_invalid_state("the scope of this sample is still open; read it after the with block");
    case SampleStatus::kDropped:
      throw_invalid_state(
          "this sample was dropped because 4096 timed spans were waiting to be read; call "
          "gpuprof.stats() or gpuprof.flush() more often, or time fewer scopes");
    case SampleStatus::kSkipped:
      throw_invalid_state(
          "this sample was skipped because it ran inside a stream capture that gpuprof did not "
          "open; pass in_capture=\"record\" to time each replay");
    case SampleStatus::kCaptured:
      throw_invalid_state(
          "this sample was recorded into a graph and gets a new time with each replay; read its "
          "ms");
    default:
      if (sample.error) throw *sample.error;
      throw_invalid_state("this sample could not be measured");
  }
}

// nan where nothing was to be measured; throws where there is no value.
double value_of(Sample& sample) {
  switch (sample.load_status()) {
    case SampleStatus::kDisabled:
    case SampleStatus::kLeftOut:
      return kNan;
    case SampleStatus::kDone:
      return sample.clock == timing::kCudaClock ? sample.device_ms : sample.host_ms();
    default:
      throw_unmeasured(sample);
  }
}

bool is_known(Sample& sample) {
  const SampleStatus status = sample.load_status();
  if (status == SampleStatus::kPending) {
    const auto look = [&] { timing::device::wait(sample, timing::monotonic_now()); };
    reads_at_once() ? look() : without_gil(look);
  }
  if (status == SampleStatus::kCaptured) {
    double ms = 0.0;
    try {
      return timing::device::read_captured(sample, ms);
    } catch (const driver::Error&) {
      return false;
    }
  }
  return sample.load_status() == SampleStatus::kDone;
}

std::optional<double> try_ms(Sample& sample) {
  if (timing::is_off(sample.load_status())) return kNan;
  return is_known(sample) ? std::optional(read_milliseconds(sample)) : std::nullopt;
}

// An attribute of Python's, and a method without arguments, by a function or a member of a sample.
template <auto kRead>
PyObject* get(PyObject* self, void* /*closure*/ = nullptr) {
  return guarded<PyObject*>(nullptr, [&] {
    py::object value = py::detail::object_or_cast(std::invoke(kRead, sample_of(self)));
    return value.release().ptr();
  });
}
template <auto kRead>
PyObject* call(PyObject* self, PyObject* /*unused*/) {
  return get<kRead>(self);
}

double host_ms_of(const Sample& sample) {
  const SampleStatus status = sample.load_status();
  if (status == SampleStatus::kOpen) throw_unmeasured(sample);
  return timing::is_off(status) ? kNan : sample.host_ms();
}

py::object path_of(const Sample& sample) { return from_utf8(sample.path->text); }
py::object names_of(const Sample& sample) { return path_names(*sample.path); }
py::object clock_of(const Sample& sample) { return from_utf8(timing::clock_name(sample.clock)); }

bool has_failed(const Sample& sample) {
  return sample.body_raised || sample.load_status() == SampleStatus::kFailed;
}
bool was_dropped(const Sample& sample) { return sample.load_status() == SampleStatus::kDropped; }

// The attributes `flops` and `nbytes`.
template <double SpanDetails::* kAmount>
std::optional<double> get_amount(const Sample& sample) {
  const double amount = sample.details != nullptr ? (*sample.details).*kAmount : -1.0;
  return amount < 0.0 ? std::nullopt : std::optional(amount);
}

template <double SpanDetails::* kAmount>
int set_amount(PyObject* self, PyObject* value, void* /*closure*/) {
  const std::string name = kAmount == &SpanDetails::flops ? "flops" : "nbytes";
  if (value == nullptr) {
    PyErr_Format(PyExc_AttributeError, "%s: it cannot be deleted; set it to None", name.c_str());
    return -1;
  }
  return guarded(-1, [&] {
    Sample& sample = sample_of(self);
    const std::optional<double> amount = amount_of(value, name.c_str());
    const SampleStatus status = sample.load_status();
    if (status == SampleStatus::kPending || status == SampleStatus::kDone ||
        status == SampleStatus::kCaptured) {
      throw_invalid_state((name +
                           ": the scope of this sample was left, and its work is counted; set it "
                           "inside the with block")
                              .c_str());
    }
    if (!timing::is_off(status)) timing::details_of(sample).*kAmount = amount.value_or(-1.0);
    return 0;  // a sample that is off is one object for all
  });
}

// In the order of SampleStatus.
constexpr const char* kStates[] = {"open",    "pending",  "done",   "disabled", "dropped",
                                   "skipped", "captured", "failed", "left out"};

const char* state_of(const Sample& sample) {
  return kStates[static_cast<std::size_t>(sample.load_status())];
}

// Polls, never waits.
std::string repr_of_sample(Sample& sample) {
  const bool known = is_known(sample);
  const SampleStatus status = sample.load_status();
  std::string text = "<gpuprof.Sample ";
  if (!sample.path->text.empty()) text += "'" + sample.path->text + "' ";
  text += timing::clock_name(sample.clock);
  char number[64];
  if (known && status == SampleStatus::kDone) {
    std::snprintf(number, sizeof number, " %.6g ms, host %.6g ms", value_of(sample),
                  sample.host_ms());
    text += number;
  } else {
    text += std::string(" ") + state_of(sample);
  }
  return text + (sample.body_raised ? ", body raised>" : ">");
}

PyObject* html_of_sample(PyObject* self, PyObject* /*unused*/) {
  return PyObject_CallOneArg(callback(Callback::kSampleHtml), self);
}

py::dict sample_dict(Sample& sample) {
  const bool known = is_known(sample);
  const SampleStatus status = sample.load_status();
  const bool left = status != SampleStatus::kOpen && !timing::is_off(status);
  py::dict result;
  result["path"] = path_of(sample);
  result["names"] = path_names(*sample.path);
  result["clock"] = timing::clock_name(sample.clock);
  result["state"] = state_of(sample);
  result["ms"] = known ? py::object(py::float_(sample_milliseconds(sample))) : py::none();
  result["host_ms"] = left ? py::object(py::float_(sample.host_ms())) : py::none();
  result["failed"] = has_failed(sample);
  if (sample.weight > 1) result["one_in"] = sample.weight;
  result["flops"] = get_amount<&SpanDetails::flops>(sample);
  result["nbytes"] = get_amount<&SpanDetails::nbytes>(sample);
  const py::object memory = memory_of(sample);
  result["memory"] = memory.is_none() ? memory : memory.attr("to_dict")();
  return result;
}

py::tuple reduce_sample(Sample& sample) {
  if (sample.load_status() == SampleStatus::kPending) sample_milliseconds(sample);
  const SampleStatus status = sample.load_status();
  if (status == SampleStatus::kOpen || status == SampleStatus::kCaptured) throw_unmeasured(sample);
  const py::object restore = py::module_::import("gpuprof._core").attr("_restore_sample");
  return py::make_tuple(
      restore, py::make_tuple(path_names(*sample.path), timing::clock_name(sample.clock),
                              static_cast<int>(status), sample.body_raised, sample.device_ms,
                              sample.host_end - sample.host_begin, details_state(sample),
                              sample.host_begin, sample.thread, sample.weight));
}

py::object restore_sample(const std::vector<std::string>& names, const std::string& clock,
                          int status, bool body_raised, double device_ms, std::int64_t host_span,
                          const AnyTuple& details, std::int64_t host_begin, std::uint32_t thread,
                          std::uint32_t weight) {
  const auto restored = static_cast<SampleStatus>(status);
  if (status < 0 || status > static_cast<int>(SampleStatus::kLeftOut) ||
      restored == SampleStatus::kOpen || restored == SampleStatus::kPending ||
      restored == SampleStatus::kCaptured) {
    throw py::value_error("not a pickled Sample: status " + std::to_string(status));
  }
  SampleRef sample(timing::make_sample());
  sample->path = &timing::root_path();
  for (const std::string& name : names) sample->path = &timing::path_below(*sample->path, name);
  sample->clock = timing::clock_id(clock);
  sample->body_raised = body_raised;
  sample->device_ms = device_ms;
  sample->host_begin = host_begin;
  sample->host_end = host_begin + host_span;
  sample->thread = thread;
  sample->weight = weight;
  restore_details(*sample.get(), details);
  sample->finish(restored);
  return py::reinterpret_steal<py::object>(wrap_sample(std::move(sample)));
}

// Two objects are equal if they are of the same entry: `scope.last` makes a new object each time.
PyObject* compare_samples(PyObject* left, PyObject* right, int operation) {
  const bool comparable =
      Py_TYPE(right) == sample_type && (operation == Py_EQ || operation == Py_NE);
  if (!comparable) Py_RETURN_NOTIMPLEMENTED;
  const bool same = &sample_of(left) == &sample_of(right);
  return PyBool_FromLong(same == (operation == Py_EQ));
}

Py_hash_t hash_of_sample(PyObject* self) {
  const auto value =
      static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(&sample_of(self)) >> 4U);
  return value == -1 ? -2 : value;
}

PyGetSetDef sample_getset[] = {
    {"ms", get<&read_milliseconds>, nullptr,
     "Milliseconds between enter and exit, on the GPU where the clock is 'cuda'.\n\n"
     "Waits for the GPU, letting other threads run. nan if timing was off, or if the budget left\n"
     "this visit out.\n\n"
     "Raises\n------\nInvalidStateError\n    The scope is still open, or the sample was dropped or "
     "skipped.\nNotReplayedError\n    It was recorded into a graph that has not run yet.\n"
     "CudaError\n    The driver refused to measure it.",
     nullptr},
    {"ready", get<&is_known>, nullptr, "Whether `ms` would return at once with a measurement.",
     nullptr},
    {"host_ms", get<&host_ms_of>, nullptr, "Milliseconds that the host spent inside the scope.",
     nullptr},
    {"host_begin_ns", get<&Sample::host_begin>, nullptr,
     "When the host entered the scope, on the clock of time.monotonic_ns(); 0 if timing was off.",
     nullptr},
    {"host_end_ns", get<&Sample::host_end>, nullptr,
     "When the host left the scope, on the clock of time.monotonic_ns(); 0 before that.", nullptr},
    {"thread_id", get<&Sample::thread>, nullptr,
     "The system's number of the thread that left the scope, as threading.get_native_id(); 0 where "
     "neither a listener nor a trace asked for it.",
     nullptr},
    {"path", get<&path_of>, nullptr, "The names of the open scopes, outermost first: 'step/fwd'.",
     nullptr},
    {"names", get<&names_of>, nullptr,
     "The names that `path` joins, as a tuple: ('step', 'fwd'). A '/' in a name is part of it.",
     nullptr},
    {"clock", get<&clock_of>, nullptr,
     "What measured: 'cuda', 'cpu', 'metal' or a SyncBackend's name.", nullptr},
    {"stream", get<&Sample::stream>, nullptr,
     "The CUDA stream's handle, 0 for the legacy default one.", nullptr},
    {"state", get<&state_of>, nullptr,
     "'open', 'pending', 'done', 'disabled', 'dropped', 'skipped', 'captured', 'failed' or\n"
     "'left out', to stay within the budget of `gpuprof.set_budget`.",
     nullptr},
    {"one_in", get<&Sample::weight>, nullptr,
     "How many visits it stands for: above 1 where a budget leaves visits out.", nullptr},
    {"failed", get<&has_failed>, nullptr, "Whether the body raised or the driver refused.",
     nullptr},
    {"dropped", get<&was_dropped>, nullptr,
     "Whether nothing was measured because too many samples were pending.", nullptr},
    {"cuda_started_inside", get<&Sample::device_started>, nullptr,
     "Whether CUDA came into use inside this CPU-clock scope, so that GPU work may be missing.",
     nullptr},
    {"flops", get<&get_amount<&SpanDetails::flops>>, set_amount<&SpanDetails::flops>,
     "Floating-point operations of this entry, or None. Set it inside the scope.", nullptr},
    {"nbytes", get<&get_amount<&SpanDetails::nbytes>>, set_amount<&SpanDetails::nbytes>,
     "Bytes that this entry reads and writes, or None. Set it inside the scope.", nullptr},
    {"memory", get<&memory_of>, nullptr,
     "What the allocators did, a `results.MemoryUse`. None without `memory=True`, inside the "
     "scope, and on other clocks than 'cuda'.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef sample_methods[] = {
    {"try_ms", call<&try_ms>, METH_NOARGS,
     "try_ms(self: gpuprof._core.Sample) -> float | None\n\n"
     "Like `ms`, but None instead of waiting or raising."},
    {"to_dict", call<&sample_dict>, METH_NOARGS,
     "to_dict(self: gpuprof._core.Sample) -> dict[str, typing.Any]\n\n"
     "Plain data; does not wait, and `ms` is None while it is not known."},
    {"_repr_html_", Guarded<&html_of_sample>::call, METH_NOARGS,
     "_repr_html_(self: gpuprof._core.Sample) -> str"},
    {"__reduce__", call<&reduce_sample>, METH_NOARGS,
     "__reduce__(self: gpuprof._core.Sample) -> tuple[typing.Any, ...]"},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot sample_slots[] = {
    {Py_tp_doc, const_cast<char*>("One measured span: what entering a scope gives.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc_sample)},
    {Py_tp_repr,
     reinterpret_cast<void*>(+[](PyObject* self) { return get<&repr_of_sample>(self); })},
    {Py_tp_richcompare, reinterpret_cast<void*>(&compare_samples)},
    {Py_tp_hash, reinterpret_cast<void*>(&hash_of_sample)},
    {Py_tp_getset, sample_getset},
    {Py_tp_methods, sample_methods},
    {0, nullptr}};

PyType_Spec sample_spec = {"gpuprof._core.Sample", sizeof(SampleObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, sample_slots};

}  // namespace

PyObject* wrap_sample(SampleRef sample) noexcept {
  PyObject* object = nullptr;
  if (free_count > 0) {
    object = PyObject_Init(free_list[--free_count], sample_type);
  } else {
    object = reinterpret_cast<PyObject*>(PyObject_New(SampleObject, sample_type));
    if (object == nullptr) return nullptr;
  }
  reinterpret_cast<SampleObject*>(object)->sample = sample.release();
  return object;
}

PyObject* disabled_sample() noexcept { return Py_NewRef(disabled_object); }
PyObject* left_out_sample() noexcept { return Py_NewRef(left_out_object); }

SampleRef sample_in(PyObject* object) noexcept {
  timing::add_reference(&sample_of(object));
  return SampleRef(&sample_of(object));
}

double sample_milliseconds(Sample& sample) {
  if (sample.load_status() == SampleStatus::kCaptured) {
    double ms = 0.0;
    wait_without_gil([&](timing::HostNanoseconds until) {
      return timing::poll_until(until, [&] { return timing::device::read_captured(sample, ms); });
    });
    return ms;
  }
  if (sample.load_status() == SampleStatus::kPending) {
    wait_without_gil(
        [&](timing::HostNanoseconds until) { return timing::device::wait(sample, until); });
  }
  return value_of(sample);
}

double read_milliseconds(Sample& sample) {
  const double ms = sample_milliseconds(sample);
  call_listeners_after_read();
  return ms;
}

void bind_timing_sample(py::module_& module) {
  sample_type = add_type(module, sample_spec);
  for (const auto& [object, status] : {std::pair{&disabled_object, SampleStatus::kDisabled},
                                       std::pair{&left_out_object, SampleStatus::kLeftOut}}) {
    SampleRef off(timing::make_sample());
    off->path = &timing::root_path();
    off->finish(status);
    *object = checked(wrap_sample(off));
  }
  module.def("_restore_sample", &restore_sample, py::arg("names"), py::arg("clock"),
             py::arg("status"), py::arg("body_raised"), py::arg("device_ms"), py::arg("host_span"),
             py::arg("details") = py::tuple(), py::arg("host_begin") = 0, py::arg("thread_id") = 0,
             py::arg("one_in") = 1);
}

py::typing::Tuple<py::str, py::ellipsis> path_names(const timing::Path& path) {
  const std::vector<const timing::Path*> around = timing::lineage(path);
  py::tuple names(around.size());
  for (std::size_t i = 0; i < around.size(); ++i) names[i] = from_utf8(around[i]->name);
  return names;
}

}  // namespace gpuprof::bindings
