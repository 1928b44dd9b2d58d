// The arguments of a function of METH_FASTCALL | METH_KEYWORDS, sorted into their places.
//
// Needs the interpreter lock; reading them allocates nothing.
#pragma once

#include <Python.h>

#include <cstddef>
#include <string>

namespace gpuprof::bindings {

// What `by_name` has of the name that is a call's only argument; borrowed. Null for nothing, for
// other calls, and with an exception set.
inline PyObject* find_by_name(PyObject* by_name, PyObject* const* arguments, Py_ssize_t count,
                              PyObject* keywords) {
  const bool is_name = count == 1 && keywords == nullptr && PyUnicode_CheckExact(arguments[0]);
  return is_name ? PyDict_GetItemWithError(by_name, arguments[0]) : nullptr;
}

template <std::size_t kCount>
using ArgumentNames = const char* const (&)[kCount];

template <std::size_t kCount>
struct CallArguments {
  PyObject* at[kCount] = {};  // borrowed, by their places in the signature; null: not given

  // At most `positional` without a name. False where the call does not fit.
  bool read(ArgumentNames<kCount> names, Py_ssize_t positional, PyObject* const* arguments,
            Py_ssize_t count, PyObject* keywords) {
    if (count > positional) return false;
    for (Py_ssize_t i = 0; i < count; ++i) at[i] = arguments[i];
    const Py_ssize_t named = keywords != nullptr ? PyTuple_GET_SIZE(keywords) : 0;
    for (Py_ssize_t i = 0; i < named; ++i) {
      PyObject** slot = place(names, PyTuple_GET_ITEM(keywords, i));
      if (slot == nullptr || *slot != nullptr) return false;
      *slot = arguments[count + i];
    }
    return true;
  }

  // Sets the TypeError of a call that read() has refused. Always null.
  PyObject* refuse(const char* function, ArgumentNames<kCount> names, Py_ssize_t positional,
                   Py_ssize_t count, PyObject* keywords) {
    if (count > positional) {
      return PyErr_Format(PyExc_TypeError,
                          "%s() takes at most %zd by position; got %zd positional arguments",
                          function, positional, count);
    }
    std::string all;
    for (const char* name : names) all += (all.empty() ? "" : ", ") + std::string(name);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) {
      PyObject* keyword = PyTuple_GET_ITEM(keywords, i);
      PyObject* const* slot = place(names, keyword);
      if (slot == nullptr) {
        return PyErr_Format(PyExc_TypeError, "%s() has no argument '%U'; it takes %s", function,
                            keyword, all.c_str());
      }
      if (slot - at < count) {
        return PyErr_Format(PyExc_TypeError, "%s() got two values for '%U'", function, keyword);
      }
    }
    return nullptr;
  }

 private:
  PyObject** place(ArgumentNames<kCount> names, PyObject* keyword) {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (PyUnicode_CompareWithASCIIString(keyword, names[i]) == 0) return &at[i];
    }
    return nullptr;
  }
};

}  // namespace gpuprof::bindings
