#include <mutex>
#include <optional>
#include <unordered_set>

#include "driver/cuda_thread_state.hpp"
#include "driver/process.hpp"
#include "graphs/cuda_handles.hpp"
#include "graphs/cuda_scalar_memory.hpp"
#include "graphs/device_scalar.hpp"
#include "timing/cuda_capture.hpp"
#include "timing/cuda_contexts.hpp"

namespace gpuprof::graphs {

using driver::check;
using driver::Error;
using driver::Table;
using timing::EventClock;
using timing::EventPair;
using timing::HostNanoseconds;
using timing::captures::is_capturing;
using timing::contexts::as_stream;
using timing::contexts::is_default_stream;
using timing::contexts::kPerThreadStream;

namespace {

void refuse_capture(const Table& table, std::uintptr_t stream, const char* message) {
  if (is_capturing(table, stream)) refuse(message);
}

// The legacy default stream has two handles; each thread's own has one for all of them.
bool surely_same_stream(std::uintptr_t one, std::uintptr_t other) noexcept {
  return (one == other && one != kPerThreadStream) || (one <= 1 && other <= 1);
}

// All that are not destroyed.
struct Scalars {
  driver::ForkMutex mutex;
  std::unordered_set<const DeviceScalar*> all;
};

Scalars& scalars_alive() { return driver::immortal<Scalars>(); }

driver::EventAccess access_to(EventClock& clock) {
  if (const auto access = clock.try_access()) return *access;
  driver::throw_if_blocked();
  timing::contexts::forget_lost();
  throw Error(CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "cuCtxGetId",
              "the context that this DeviceScalar lies in was destroyed or reset, and its memory "
              "with it; make a new one");
}

// An event for one mark on a stream: of the clock's pool, or its own where all of those are in use.
class Mark {
 public:
  explicit Mark(EventClock& clock) : clock_(clock) {
    if (!clock.take(pair_)) own_.emplace(clock, CU_EVENT_DISABLE_TIMING);
  }
  ~Mark() {
    if (!own_) clock_.give_back(pair_);
  }

  [[nodiscard]] CUevent event() const noexcept { return own_ ? own_->handle() : pair_.end; }

 private:
  EventClock& clock_;
  EventPair pair_;
  std::optional<timing::OwnEvent> own_;
};

// A stream of our own: what was queued on the user's meanwhile is not waited for, and a capture
// that has begun there is not met.
struct ReadStream {
  explicit ReadStream(const Table& of) : table(of) {
    check(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  ReadStream(const ReadStream&) = delete;
  ReadStream& operator=(const ReadStream&) = delete;
  ~ReadStream() {
    if (!driver::is_blocked()) table.cuStreamDestroy(stream);
  }

  const Table& table;
  CUstream stream = nullptr;
};

}  // namespace

struct DeviceScalar::Reading::State {
  State(EventClock& of, std::shared_ptr<void> at, std::size_t count)
      : clock(of), memory(std::move(at)), bytes(count), mark(of) {}

  EventClock& clock;
  const std::shared_ptr<void> memory;
  const std::size_t bytes;
  const Mark mark;
};

bool DeviceScalar::Reading::poll(HostNanoseconds until) {
  return timing::poll_until(until, [this] {
    const driver::EventAccess access = access_to(state_->clock);
    const driver::RelaxedCapture relaxed(driver::ready());
    const CUresult status = access.query(state_->mark.event());
    if (status == CUDA_ERROR_NOT_READY) return false;
    check(status, "cuEventQuery");
    return true;
  });
}

std::uint64_t DeviceScalar::Reading::fetch() {
  const Table& table = driver::ready();
  access_to(state_->clock);
  const driver::CurrentContext current(table, state_->clock.context());
  const driver::RelaxedCapture relaxed(table);
  const ReadStream on(table);
  std::uint64_t bits = 0;
  check(table.cuMemcpyDtoHAsync(&bits, reinterpret_cast<CUdeviceptr>(state_->memory.get()),
                                state_->bytes, on.stream),
        "cuMemcpyDtoHAsync");
  check(table.cuStreamSynchronize(on.stream), "cuStreamSynchronize");
  return bits;
}

DeviceScalar::DeviceScalar(std::size_t bytes, std::uint64_t bits, std::uintptr_t stream,
                           int ordinal)
    : bytes_(bytes) {
  const Table& table = driver::ready();
  clock_ = timing::contexts::find(table, stream, ordinal).clock;
  const driver::CurrentContext current(table, clock_->context());
  refuse_capture(table, stream,
                 "stream: it is being captured, and a DeviceScalar made there would get its first "
                 "value at each replay; make it before the capture begins");
  memory_ = take_slot(table, *clock_);
  write(bits, stream);
  last_stream_ = stream;
  updates_ = 1;
  Scalars& scalars = scalars_alive();
  const std::lock_guard lock(scalars.mutex);
  scalars.all.insert(this);
}

DeviceScalar::~DeviceScalar() {
  Scalars& scalars = scalars_alive();
  const std::lock_guard lock(scalars.mutex);
  scalars.all.erase(this);
}

bool DeviceScalar::surely_updated_on(std::uintptr_t stream) const noexcept {
  return surely_same_stream(stream, last_stream());
}

int DeviceScalar::ordinal() const noexcept { return clock_->ordinal(); }

// A default stream is one of whichever context is current, and that is the scalar's.
void DeviceScalar::check_stream(std::uintptr_t stream) const {
  if (is_default_stream(stream) || stream == last_stream()) return;
  CUcontext context = nullptr;
  check(driver::ready().cuStreamGetCtx(as_stream(stream), &context), "cuStreamGetCtx");
  if (context == clock_->context()) return;
  refuse(
      "stream: it belongs to another CUDA context than this DeviceScalar, which lies on "
      "device " +
      std::to_string(ordinal()) + "; pass a stream of that device");
}

void DeviceScalar::write(std::uint64_t bits, std::uintptr_t stream) {
  const Table& table = driver::ready();
  const CUstream on = as_stream(stream);
  const CUdeviceptr at = address();
  if (stream == kPerThreadStream) any_on_per_thread_stream.store(true, std::memory_order_relaxed);
  if (bytes_ == 1) {
    check(table.cuMemsetD8Async(at, static_cast<unsigned char>(bits), 1, on), "cuMemsetD8Async");
    return;
  }
  if (bytes_ == 2) {
    check(table.cuMemsetD16Async(at, static_cast<unsigned short>(bits), 1, on), "cuMemsetD16Async");
    return;
  }
  if (bytes_ == 8) {
    if (!in_halves_.load(std::memory_order_relaxed)) {
      const CUresult status =
          table.cuStreamWriteValue64(on, at, bits, CU_STREAM_WRITE_VALUE_DEFAULT);
      if (status != CUDA_ERROR_NOT_SUPPORTED && status != driver::kMissingEntry) {
        check(status, "cuStreamWriteValue64");
        return;
      }
      in_halves_.store(true, std::memory_order_relaxed);
    }
    // One after the other in the stream: nothing that is ordered by it comes in between.
    check(table.cuMemsetD32Async(at + 4, static_cast<unsigned>(bits >> 32U), 1, on),
          "cuMemsetD32Async");
  }
  check(table.cuMemsetD32Async(at, static_cast<unsigned>(bits), 1, on), "cuMemsetD32Async");
}

bool DeviceScalar::update(std::uint64_t bits, std::uintptr_t stream, bool record) {
  const Table& table = driver::ready();
  access_to(*clock_);
  check_stream(stream);
  const driver::CurrentContext current(table, clock_->context());
  const bool captured = is_capturing(table, stream);
  if (captured && !record) {
    refuse(
        "DeviceScalar.update() on a stream that is being captured would become a node that "
        "writes this value at each replay; update before the replays, or pass record=True "
        "(in C++ WhileCapturing::kRecord) if that is what you want");
  }
  write(bits, stream);
  if (!captured) {
    last_stream_.store(stream, std::memory_order_relaxed);
    updates_.fetch_add(1, std::memory_order_release);
  }
  return captured;
}

DeviceScalar::Reading DeviceScalar::reading(std::uintptr_t stream) const {
  const Table& table = driver::ready();
  access_to(*clock_);
  check_stream(stream);
  const driver::CurrentContext current(table, clock_->context());
  refuse_capture(table, stream,
                 "DeviceScalar.get() on a stream that is being captured: nothing runs there until "
                 "the graph is launched; end the capture first, or pass another stream");
  auto state = std::make_shared<Reading::State>(*clock_, memory_, bytes_);
  check(access_to(*clock_).record(state->mark.event(), as_stream(stream)), "cuEventRecord");
  return Reading(std::move(state));
}

void DeviceScalar::order_before(std::uintptr_t stream, const char* refusal) const {
  const Table& table = driver::ready();
  access_to(*clock_);
  const std::uintptr_t last = last_stream();
  if (surely_same_stream(stream, last)) return;
  const driver::CurrentContext current(table, clock_->context());
  refuse_capture(table, stream, refusal);
  refuse_capture(table, last, refusal);
  const Mark mark(*clock_);
  const driver::EventAccess access = access_to(*clock_);
  check(access.record(mark.event(), as_stream(last)), "cuEventRecord");
  check(access.let_wait(as_stream(stream), mark.event()), "cuStreamWaitEvent");
}

std::vector<std::shared_ptr<const DeviceScalar>> scalars_updated_on(const EventClock& clock,
                                                                    std::uintptr_t stream) {
  std::vector<std::shared_ptr<const DeviceScalar>> found;
  Scalars& scalars = scalars_alive();
  const std::lock_guard lock(scalars.mutex);
  found.reserve(scalars.all.size());
  for (const DeviceScalar* scalar : scalars.all) {
    const bool is_of_stream = scalar->last_stream() == stream || scalar->surely_updated_on(stream);
    if (&scalar->clock() != &clock || !is_of_stream) continue;
    if (auto alive = scalar->weak_from_this().lock()) found.push_back(std::move(alive));
  }
  return found;
}

}  // namespace gpuprof::graphs
