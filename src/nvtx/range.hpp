// Ranges and marks of NVTX, which is header-only: nothing is linked.
//
// NVTX loads the tool that NVTX_INJECTION64_PATH names at the first NVTX call of the process, so no
// call is made before NVTX is enabled. Without a tool a call only tests a null pointer. A tool
// keeps domains, texts and categories as long as the process lives, so their numbers are bounded.
//
// The result of a push does not tell whether a tool listens: it is -2 without a tool, and always -1
// under Nsight Systems. tool_listens() asks NVTX. The caller serialises calls. They allocate, and
// throw only std::bad_alloc. A forked child uses its parent's tool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace gpuprof::nvtx {

inline constexpr std::size_t kMaxDomains = 64;
inline constexpr std::size_t kMaxCategories = 1'000;  // in each domain
inline constexpr std::size_t kMaxTexts = 10'000;      // registered, in all domains together

// What a push returns where no tool counts.
inline constexpr int kNoTracking = -2;

// A namespace of ranges. Lives as long as the process.
class Domain;

// The domain of ranges without one: "gpuprof".
Domain& default_domain();

// NVTX's own domain, of ranges that name none: what torch.cuda.nvtx and PyPI's nvtx use.
Domain& unnamed_domain();

// The domain of that name; past kMaxDomains the default one, with one warning.
Domain& domain_named(std::string_view name);

// Whether a tool listens to this domain.
bool tool_listens(Domain& domain = default_domain());

// The elements of an array, in the order of NVTX's types from INT8 on.
enum class Element : std::uint8_t {
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
};

// An array beside a range: the number of its elements as 64 bits, then the elements.
struct ArrayPayload {
  Element element;
  std::string bytes;
};

// A number, or an array, beside a range.
using Payload = std::variant<std::monostate, std::int64_t, std::uint64_t, double,
                             std::shared_ptr<const ArrayPayload>>;

// What a tool shows of a range besides its label.
struct Attributes {
  std::optional<std::uint32_t> argb;
  std::string category;  // empty: none
  Payload payload;
};

// A range with a valid label. The label is registered with the tool, or past kMaxTexts passed as a
// text each time.
class Range {
 public:
  Range(Domain& domain, std::string label, Attributes attributes);
  ~Range();

  [[nodiscard]] Domain& domain() const noexcept { return *domain_; }
  [[nodiscard]] const std::string& label() const noexcept { return label_; }

  // Registers label and category. Idempotent; the calls below do it where needed.
  void prepare();
  // Opens it on this thread; pop() closes the newest of its domain.
  void push();
  // Opens it for the process and returns the tool's number; end() closes it, on any thread.
  std::uint64_t start();
  void mark();

 private:
  struct Prepared;

  Domain* domain_;
  std::string label_;
  Attributes attributes_;
  std::unique_ptr<Prepared> prepared_;
};

void pop(Domain& domain) noexcept;
void end(Domain& domain, std::uint64_t number) noexcept;

// Gives a thread, by the kernel's number, or a CUDA stream a name in tools.
void name_thread(std::uint32_t tid, const std::string& name);
void name_stream(std::uintptr_t stream, const std::string& name);

// The result of the last push on any thread; kNoTracking before the first.
int last_push_result() noexcept;

}  // namespace gpuprof::nvtx
