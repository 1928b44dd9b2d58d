#include "bindings/gc_pause.hpp"

#include <Python.h>

namespace gpuprof::bindings {
namespace {

int pauses = 0;
bool was_enabled = false;
unsigned current_round = 0;

void put_back() noexcept {
  if (was_enabled) {
    PyGC_Enable();
  } else {
    PyGC_Disable();
  }
}

}  // namespace

void GcPause::begin() noexcept {
  if (paused_) return;
  paused_ = true;
  round_ = current_round;
  if (pauses++ == 0) was_enabled = PyGC_Disable() != 0;
}

void GcPause::end() noexcept {
  if (!paused_) return;
  paused_ = false;
  if (round_ != current_round || --pauses > 0) return;
  put_back();
}

void end_gc_pauses() noexcept {
  if (pauses == 0) return;
  pauses = 0;
  ++current_round;
  put_back();
}

int gc_pauses() noexcept { return pauses; }

}  // namespace gpuprof::bindings
