// Captures that reach a second stream, or a second capture.
#include "world.hpp"

namespace conformance {
namespace {

// Lets `to` follow `from` in its capture, with work of its own.
void fork_capture(World& w, H from, H to) {
  Q(cuEventRecord(w.e, from));
  Q(cuStreamWaitEvent(to, w.e, 0));
  Q(spin(to, 10));
}

void cap_unjoined() {
  World w;
  H s = w.s, t = w.t, e = w.e;
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  Q(cuEventRecord(e, s));
  P(cuStreamWaitEvent(t, e, 0));
  Q(spin(t, 10));
  status(t);
  end(s);
  status(s);
  status(t);
  P(cuEventQuery(e));
  P(cuStreamSynchronize(t));
}

void cap_end_on_forked() {
  World w;
  H s = w.s;
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  fork_capture(w, w.s, w.t);
  end(w.t);
  status(w.s);
  status(w.t);
  end(w.s);
}

void cap_merge() {
  World w;
  H t = w.t, e = w.e;
  Q(cuStreamBeginCapture_v2(w.s, 0));
  Q(cuStreamBeginCapture_v2(w.t, 0));
  Q(spin(w.s, 10));
  Q(cuEventRecord(e, w.s));
  P(cuStreamWaitEvent(t, e, 0));
  status(w.s);
  status(w.t);
  P(cuStreamBeginCapture_v2(t, 1));
  end(w.s);
  end(w.t);
}

void cap_stale_cross() {
  World w;
  H t = w.t, e = w.e;
  float ms = -1;
  Q(cuStreamBeginCapture_v2(w.s, 1));
  Q(cuEventRecord(e, w.s));
  Q(spin(w.s, 10));
  end(w.s);
  P(cuStreamWaitEvent(t, e, 0));
  P(cuEventQuery(e));
  P(cuEventSynchronize(e));
  P(cuEventElapsedTime_v2(&ms, e, e));
  P(cuEventRecord(e, t));
  P(cuEventSynchronize(e));
  P(cuEventQuery(e));
}

}  // namespace

const Case kCaptureForkCases[] = {
    {"cap_unjoined", cap_unjoined},
    {"cap_end_on_forked", cap_end_on_forked},
    {"cap_merge", cap_merge},
    {"cap_stale_cross", cap_stale_cross},
    {nullptr, nullptr},
};

}  // namespace conformance
