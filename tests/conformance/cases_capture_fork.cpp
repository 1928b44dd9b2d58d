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

CASE(cap_unjoined, World) {
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

CASE(cap_end_on_forked, World) {
  P(cuStreamBeginCapture_v2(s, 0));
  Q(spin(s, 10));
  fork_capture(*this, s, t);
  end(t);
  status(s);
  status(t);
  end(s);
}

CASE(cap_merge, World) {
  Q(cuStreamBeginCapture_v2(s, 0));
  Q(cuStreamBeginCapture_v2(t, 0));
  Q(spin(s, 10));
  Q(cuEventRecord(e, s));
  P(cuStreamWaitEvent(t, e, 0));
  status(s);
  status(t);
  P(cuStreamBeginCapture_v2(t, 1));
  end(s);
  end(t);
}

CASE(cap_stale_cross, World) {
  Q(cuStreamBeginCapture_v2(s, 1));
  Q(cuEventRecord(e, s));
  Q(spin(s, 10));
  end(s);
  P(cuStreamWaitEvent(t, e, 0));
  P(cuEventQuery(e));
  P(cuEventSynchronize(e));
  P(cuEventElapsedTime_v2(&ms, e, e));
  P(cuEventRecord(e, t));
  P(cuEventSynchronize(e));
  P(cuEventQuery(e));
}

}  // namespace

}  // namespace conformance
