// CapturedGraph and the rest of graphs/ in a build without CUDA's headers: there is no device.
#include "driver/error.hpp"
#include "graphs/capture.hpp"
#include "graphs/captured_graph.hpp"
#include "graphs/cuda_node_ids.hpp"
#include "graphs/device_scalar.hpp"
#include "graphs/nodes.hpp"

namespace gpuprof::graphs {
namespace {

[[noreturn]] void unavailable() {
  throw driver::Error(driver::ErrorKind::kUnavailable,
                      "this build of gpuprof has no CUDA support: CUDA's headers were not there "
                      "when it was built");
}

}  // namespace

std::vector<Node> walk(void* /*graph*/, const NodeLabels& /*labels*/) { unavailable(); }
std::vector<Edge> edges(void* /*graph*/) { unavailable(); }
std::size_t count_nodes(void* /*graph*/) { unavailable(); }

struct DeviceScalar::Reading::State {};
DeviceScalar::Reading::Reading(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
DeviceScalar::Reading::Reading(Reading&& other) noexcept = default;
DeviceScalar::Reading::~Reading() = default;
bool DeviceScalar::Reading::poll(timing::HostNanoseconds /*until*/) { unavailable(); }
std::uint64_t DeviceScalar::Reading::fetch() { unavailable(); }
DeviceScalar::DeviceScalar(std::size_t bytes, std::uint64_t /*bits*/, std::uintptr_t /*stream*/,
                           int /*ordinal*/)
    : bytes_(bytes), generation_(0) {
  unavailable();
}
int DeviceScalar::ordinal() const noexcept { return -1; }
bool DeviceScalar::update(std::uint64_t /*bits*/, std::uintptr_t /*stream*/, bool /*record*/) {
  unavailable();
}
DeviceScalar::Reading DeviceScalar::reading(std::uintptr_t /*stream*/) const { unavailable(); }
void DeviceScalar::order_before(std::uintptr_t /*stream*/, const char* /*refusal*/) const {
  unavailable();
}
DeviceScalar::~DeviceScalar() = default;
bool DeviceScalar::surely_updated_on(std::uintptr_t /*stream*/) const noexcept { return false; }
std::vector<std::shared_ptr<const DeviceScalar>> scalars_updated_on(
    const timing::EventClock& /*clock*/, std::uintptr_t /*stream*/) {
  unavailable();
}
void release_idle_scalars() noexcept {}

std::shared_ptr<Capture> Capture::begin(std::uintptr_t /*stream*/, int /*ordinal*/,
                                        const CaptureOptions& /*options*/) {
  unavailable();
}
std::shared_ptr<Capture> Capture::attach(std::uintptr_t /*stream*/,
                                         const CaptureOptions& /*options*/) {
  unavailable();
}
CapturedParts Capture::end() { unavailable(); }
void Capture::abort() noexcept {}
void Capture::look() noexcept {}
CaptureStatus Capture::status() { return CaptureStatus::kNone; }
bool Capture::open() const noexcept { return false; }
CaptureProgress Capture::progress() const { return {}; }
std::vector<driver::LogLine> Capture::log() const { return {}; }
StreamCapture capture_of(std::uintptr_t /*stream*/, int /*ordinal*/, std::size_t /*since*/) {
  unavailable();
}
CaptureStatus status_of(std::uintptr_t /*stream*/, int /*ordinal*/) { unavailable(); }
void discard_graph(void* /*graph*/) noexcept {}
int drop_capture(std::uintptr_t /*stream*/) { unavailable(); }
void begin_empty_capture(std::uintptr_t /*stream*/) { unavailable(); }
std::vector<std::shared_ptr<Capture>> open_captures() { return {}; }
void own_captured_scopes() noexcept {}
CaptureMode exchange_thread_mode(CaptureMode /*mode*/) { unavailable(); }
RelaxedThread::RelaxedThread() noexcept {}
RelaxedThread::~RelaxedThread() = default;

GraphSpans::GraphSpans(std::vector<timing::SampleRef> /*captured*/, GraphTimers keeping,
                       void* /*graph*/, const EventsInGraph& /*events*/)
    : keeping_(keeping) {}

struct LaunchEvent {};

struct CapturedGraph::Handle {};
CapturedGraph::CapturedGraph(CapturedParts /*parts*/, bool /*borrowed*/, std::uintptr_t /*stream*/,
                             int /*ordinal*/, GraphTimers keeping)
    : generation_(0), spans_({}, keeping, nullptr, {}) {
  unavailable();
}
CapturedGraph::~CapturedGraph() = default;
void CapturedGraph::read_scalars(
    const std::vector<std::shared_ptr<const DeviceScalar>>& /*scalars*/) {
  unavailable();
}
void CapturedGraph::read_scalars_of(std::uintptr_t /*stream*/) { unavailable(); }
void CapturedGraph::set_launch_order(std::shared_ptr<LaunchOrder> /*order*/) { unavailable(); }
void CapturedGraph::add_copies(const std::vector<IoCopy>& /*in*/,
                               const std::vector<IoCopy>& /*out*/) {
  unavailable();
}
LaunchResult CapturedGraph::launch(const LaunchRequest& /*request*/) { unavailable(); }
LaunchResult CapturedGraph::begin_external_launch(const LaunchRequest& /*request*/) {
  unavailable();
}
void CapturedGraph::end_external_launch(const LaunchRequest& /*request*/, bool /*launched*/) {}
void CapturedGraph::note_use(std::uintptr_t /*stream*/) { unavailable(); }
void CapturedGraph::lock_launch_order() { unavailable(); }
void CapturedGraph::unlock_launch_order() noexcept {}
void CapturedGraph::retain(const Payload& /*payload*/) { unavailable(); }
void CapturedGraph::instantiate() { unavailable(); }
void CapturedGraph::borrow_exec(void* /*exec*/) { unavailable(); }
void CapturedGraph::upload(std::uintptr_t /*stream*/) { unavailable(); }
bool CapturedGraph::update(CapturedGraph& /*other*/, const Payload& /*payload*/,
                           UpdateRefusal& /*refusal*/) {
  unavailable();
}
std::vector<SpanTime> CapturedGraph::times() { unavailable(); }
GraphMemory CapturedGraph::memory() { unavailable(); }
void close_later(std::unique_ptr<CapturedGraph> /*graph*/, const Payload& /*payload*/) noexcept {}
void release_finished() noexcept {}
bool CapturedGraph::close(bool /*wait*/) noexcept { return true; }
void* CapturedGraph::graph() { unavailable(); }
void* CapturedGraph::exec() { unavailable(); }
std::size_t CapturedGraph::node_count() { unavailable(); }
std::vector<Node> CapturedGraph::nodes() { unavailable(); }
std::vector<LabelledNode> CapturedGraph::labelled_nodes() { unavailable(); }
bool CapturedGraph::has_labels() { return false; }
void set_node_ids(const NodeIdFunctions& /*functions*/) noexcept {}
std::uint64_t id_of_node(void* /*node*/) { unavailable(); }
std::uint32_t id_of_exec(void* /*exec*/) { unavailable(); }

}  // namespace gpuprof::graphs
