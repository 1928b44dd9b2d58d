// Ranges and marks of NVTX, through its headers alone: nothing is linked.
//
// A tool gets them by the library that NVTX_INJECTION64_PATH names, which NVTX loads at the first
// call that this process makes; so none is made before somebody wants NVTX. Without a tool a call
// is a look at a null pointer. What a tool was given (domains, texts, categories) stays with it for
// the life of the process, so all of it is bounded.
//
// What a tool answers to a push is no sign of its health: -2 without a tool, always -1 under Nsight
// Systems. tool_listens() asks NVTX itself. Calls are serialised by the caller; they allocate, and
// throw nothing but std::bad_alloc. A forked child goes on with its parent's tool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace gpuprof::nvtx {

inline constexpr std::size_t kMaxDomains = 64;
inline constexpr std::size_t kMaxCategories = 1'000;  // in each domain
inline constexpr std::size_t kMaxTexts = 10'000;      // registered, in all domains together

// What a push answers where no tool keeps count.
inline constexpr int kNoTracking = -2;

// A name space of ranges, made at the first use of its name; lives as long as the process.
class Domain;

// The domain of what names none: "gpuprof".
Domain& default_domain();

// The domain of that name; the default one, with one warning, once there are kMaxDomains.
Domain& domain_named(std::string_view name);

// Whether a tool wants to hear of this domain, asked of NVTX.
bool tool_listens(Domain& domain = default_domain());

// A number beside a range.
struct Payload {
  enum class Kind : std::uint8_t { kNone, kSigned, kUnsigned, kReal };
  Kind kind = Kind::kNone;
  std::int64_t signed_value = 0;
  std::uint64_t unsigned_value = 0;
  double real_value = 0.0;
};

// What a range looks like besides its label.
struct Attributes {
  std::optional<std::uint32_t> argb;
  std::string category;  // empty: none
  Payload payload;
};

// A label with its attributes, made ready for NVTX at the first use. The label must be a valid one;
// it is registered, or past kMaxTexts given as a text each time.
class Range {
 public:
  Range(Domain& domain, std::string label, Attributes attributes);
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range();

  [[nodiscard]] Domain& domain() const noexcept { return *domain_; }
  [[nodiscard]] const std::string& label() const noexcept { return label_; }

  // Gives label and category to the tool. Idempotent; the others do it where it was not done.
  void prepare();
  // Opens it on this thread; pop() closes the newest of its domain.
  void push();
  // Opens it for the process; end() closes it, on any thread. The tool's number.
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

// What the tool answered to the last push of any thread; kNoTracking before the first.
int last_push_result() noexcept;

}  // namespace gpuprof::nvtx
