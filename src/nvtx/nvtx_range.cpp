#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <atomic>
#include <unordered_map>
#include <utility>

#include "driver/error.hpp"
#include "nvtx/attributes.hpp"
#include "nvtx/range.hpp"

namespace gpuprof::nvtx {

class Domain {
 public:
  explicit Domain(std::string name) : name_(std::move(name)) {}

  nvtxDomainHandle_t handle() {
    if (!made_) {
      handle_ = nvtxDomainCreateA(name_.c_str());  // null without a tool
      made_ = true;
    }
    return handle_;
  }

  // Null without a tool, and once there are too many.
  nvtxStringHandle_t text(const std::string& label) {
    if (const auto found = texts_.find(label); found != texts_.end()) return found->second;
    if (texts_in_all >= kMaxTexts) return nullptr;
    const auto place = texts_.emplace(label, nullptr).first;
    ++texts_in_all;
    place->second = nvtxDomainRegisterStringA(handle(), label.c_str());
    return place->second;
  }

  // 0, which is no category, once there are too many.
  std::uint32_t category(const std::string& name) {
    if (name.empty()) return 0;
    if (const auto found = categories_.find(name); found != categories_.end()) return found->second;
    if (categories_.size() >= kMaxCategories) return 0;
    const auto number = static_cast<std::uint32_t>(categories_.size() + 1);
    categories_.emplace(name, number);
    nvtxDomainNameCategoryA(handle(), number, name.c_str());
    return number;
  }

 private:
  static inline std::size_t texts_in_all = 0;

  std::string name_;
  nvtxDomainHandle_t handle_ = nullptr;
  bool made_ = false;
  std::unordered_map<std::string, nvtxStringHandle_t> texts_;
  std::unordered_map<std::string, std::uint32_t> categories_;
};

namespace {

std::atomic<int> last_push{kNoTracking};

struct Domains {
  Domain& of_gpuprof = *new Domain("gpuprof");
  std::unordered_map<std::string, Domain*> by_name{{"gpuprof", &of_gpuprof}};
};

Domains& domains() {
  static Domains& storage = *new Domains;
  return storage;
}

void set_payload(nvtxEventAttributes_t& attributes, const Payload& payload) {
  switch (payload.kind) {
    case Payload::Kind::kNone:
      return;
    case Payload::Kind::kSigned:
      attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
      attributes.payload.llValue = payload.signed_value;
      return;
    case Payload::Kind::kUnsigned:
      attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      attributes.payload.ullValue = payload.unsigned_value;
      return;
    case Payload::Kind::kReal:
      attributes.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
      attributes.payload.dValue = payload.real_value;
  }
}

}  // namespace

Domain& default_domain() { return domains().of_gpuprof; }

Domain& domain_named(std::string_view name) {
  const std::string key(name);
  auto& all = domains().by_name;
  if (const auto found = all.find(key); found != all.end()) return *found->second;
  if (all.size() >= kMaxDomains) {
    driver::warn_once(driver::Warning::kNvtxLabel,
                      "gpuprof: the NVTX domain '" + cut_text(key, 100) + "' is one too many (" +
                          std::to_string(kMaxDomains) +
                          " exist); its ranges are shown in the domain 'gpuprof'");
    return default_domain();
  }
  Domain*& place = all[key];
  place = new Domain(key);  // never destroyed
  return *place;
}

// NVTX calls a domain enabled even where NVTX_INJECTION64_PATH names a library that is no tool; no
// domain has a handle then.
bool tool_listens(Domain& domain) {
  return domain.handle() != nullptr && nvtxDomainIsEnabled(domain.handle()) != 0;
}

struct Range::Prepared {
  nvtxEventAttributes_t attributes{};
  nvtxDomainHandle_t domain = nullptr;
};

Range::Range(Domain& domain, std::string label, Attributes attributes)
    : domain_(&domain), label_(std::move(label)), attributes_(std::move(attributes)) {}

Range::~Range() = default;

void Range::prepare() {
  if (prepared_) return;
  auto prepared = std::make_unique<Prepared>();
  nvtxEventAttributes_t& attributes = prepared->attributes;
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = domain_->category(attributes_.category);
  if (attributes_.argb) {
    attributes.colorType = NVTX_COLOR_ARGB;
    attributes.color = *attributes_.argb;
  }
  set_payload(attributes, attributes_.payload);
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = domain_->text(label_);
  if (attributes.message.registered == nullptr) {
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = label_.c_str();
  }
  prepared->domain = domain_->handle();
  prepared_ = std::move(prepared);
}

void Range::push() {
  if (!prepared_) prepare();
  last_push.store(nvtxDomainRangePushEx(prepared_->domain, &prepared_->attributes),
                  std::memory_order_relaxed);
}

std::uint64_t Range::start() {
  if (!prepared_) prepare();
  return nvtxDomainRangeStartEx(prepared_->domain, &prepared_->attributes);
}

void Range::mark() {
  if (!prepared_) prepare();
  nvtxDomainMarkEx(prepared_->domain, &prepared_->attributes);
}

void pop(Domain& domain) noexcept { nvtxDomainRangePop(domain.handle()); }

void end(Domain& domain, std::uint64_t number) noexcept {
  nvtxDomainRangeEnd(domain.handle(), number);
}

int last_push_result() noexcept { return last_push.load(std::memory_order_relaxed); }

}  // namespace gpuprof::nvtx
