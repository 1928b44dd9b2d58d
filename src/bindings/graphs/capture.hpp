// What the parts of the bindings share of an ended capture.
#pragma once

#include "graphs/capture.hpp"

namespace gpuprof::bindings {

// A graph and the spans in it that nobody has taken over yet; destroyed with this object otherwise.
struct EndedCapture {
  graphs::CapturedParts parts;

  explicit EndedCapture(graphs::CapturedParts of) : parts(std::move(of)) {}
  EndedCapture(const EndedCapture&) = delete;
  EndedCapture& operator=(const EndedCapture&) = delete;
  ~EndedCapture() { graphs::discard_graph(parts.graph); }
};

// Puts back what captures hold that were ended with their thread: their hold on collections, a
// range. With the interpreter lock.
void close_lost_captures();

}  // namespace gpuprof::bindings
