#include "bindings/gc_pause.hpp"

#include <Python.h>

namespace gpuprof::bindings {
namespace {

int pauses = 0;
bool was_enabled = false;

}  // namespace

void GcPause::begin() noexcept {
  if (paused_) return;
  paused_ = true;
  if (pauses++ == 0) was_enabled = PyGC_Disable() != 0;
}

void GcPause::end() noexcept {
  if (!paused_) return;
  paused_ = false;
  if (--pauses > 0) return;
  if (was_enabled) {
    PyGC_Enable();
  } else {
    PyGC_Disable();
  }
}

int gc_pauses() noexcept { return pauses; }

}  // namespace gpuprof::bindings
