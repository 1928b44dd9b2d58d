// An awaitable that is done: what __aenter__ and __aexit__ return where there is nothing to wait
// for. Needs the interpreter lock.
#pragma once

#include <pybind11/pybind11.h>

namespace gpuprof::bindings {

// `await` on it gives `value` at once, as often as it is asked.
pybind11::object ready_awaitable(const pybind11::object& value);

}  // namespace gpuprof::bindings
