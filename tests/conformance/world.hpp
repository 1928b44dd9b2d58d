// What nearly every case starts from: CUDA initialised, the primary context current, streams and
// events with the names that the rows show.
#pragma once

#include "driver.hpp"

namespace conformance {

struct Initialised : Untouched {
  Initialised() {
    Q(cuInit(0));
    Q(cuDeviceGet(&dev, 0));
    Q(cuDevicePrimaryCtxRetain(&ctx, dev));
    Q(cuCtxSetCurrent(ctx));
  }
  int dev = 0;
  H ctx = nullptr;
};

// `s` and `t` are non-blocking, `u` is a blocking stream; `e` and `f` are recorded and done.
struct World : Initialised {
  explicit World(bool with_kernels = true) {
    if (with_kernels) load_kernels();
    Q(cuStreamCreate(&s, 1));
    Q(cuStreamCreate(&t, 1));
    Q(cuStreamCreate(&u, 0));
    Q(cuEventCreate(&e, 0));
    Q(cuEventCreate(&f, 0));
    Q(cuEventRecord(e, s));
    Q(cuEventRecord(f, s));
    Q(cuCtxSynchronize());
  }
  H s = nullptr, t = nullptr, u = nullptr;
  H e = nullptr, f = nullptr;

  // A graph of one kernel of that length, and its executable copy.
  void make_graph(H* graph, H* exec, unsigned microseconds = 10) {
    Q(cuStreamBeginCapture_v2(s, 2));
    Q(spin(s, microseconds));
    Q(cuStreamEndCapture(s, graph));
    if (exec != nullptr) Q(cuGraphInstantiateWithFlags(exec, *graph, 0));
  }
};

inline void launch_and_wait(H x, H s) {
  P(cuGraphLaunch(x, s));
  P(cuStreamSynchronize(s));
}

struct Unloaded : World {
  Unloaded() : World(false) {}
};

}  // namespace conformance
