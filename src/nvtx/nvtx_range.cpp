#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <array>
#include <atomic>
#include <unordered_map>
#include <utility>

#include "driver/error.hpp"
#include "driver/process.hpp"
#include "nvtx/attributes.hpp"
#include "nvtx/range.hpp"

namespace gpuprof::nvtx {

class Domain {
 public:
  // The domain without a name is NVTX's own: its handle is null, and it is never made.
  explicit Domain(std::string name) : name_(std::move(name)), made_(name_.empty()) {}

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

  // The schema of arrays of these elements: their number, then as many. 0 without a tool, and under
  // one that knows no schemas.
  std::uint64_t array_schema(Element element) {
    std::uint64_t& schema = schemas_[static_cast<std::size_t>(element)];
    if (schema != 0) return schema;
    std::array<nvtxPayloadSchemaEntry_t, 2> entries{};
    entries[0].type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64;
    entries[0].name = "size";
    entries[1].flags = NVTX_PAYLOAD_ENTRY_FLAG_ARRAY_LENGTH_INDEX;
    entries[1].type = entry_type(element);
    entries[1].name = "data";
    entries[1].arrayOrUnionDetail = 0;  // the entry that has the length
    nvtxPayloadSchemaAttr_t attributes{};
    attributes.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                           NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                           NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
    attributes.type = NVTX_PAYLOAD_SCHEMA_TYPE_DYNAMIC;
    attributes.entries = entries.data();
    attributes.numEntries = entries.size();
    schema = nvtxPayloadSchemaRegister(handle(), &attributes);
    return schema;
  }

 private:
  static constexpr std::size_t kElementCount = static_cast<std::size_t>(Element::kFloat64) + 1;
  static inline std::size_t texts_in_all = 0;

  static std::uint64_t entry_type(Element element) noexcept {
    if (element >= Element::kFloat16) {
      return NVTX_PAYLOAD_ENTRY_TYPE_FLOAT16 + static_cast<std::uint64_t>(element) -
             static_cast<std::uint64_t>(Element::kFloat16);
    }
    return NVTX_PAYLOAD_ENTRY_TYPE_INT8 + static_cast<std::uint64_t>(element);
  }

  std::string name_;
  nvtxDomainHandle_t handle_ = nullptr;
  bool made_ = false;
  std::array<std::uint64_t, kElementCount> schemas_{};
  std::unordered_map<std::string, nvtxStringHandle_t> texts_;
  std::unordered_map<std::string, std::uint32_t> categories_;
};

namespace {

std::atomic<int> last_push{kNoTracking};

struct Domains {
  Domain unnamed{""};
  Domain of_gpuprof{"gpuprof"};
  std::unordered_map<std::string, Domain*> by_name{{"gpuprof", &of_gpuprof}};
};

Domains& domains() { return driver::immortal<Domains>(); }

// An array needs its domain and `data`, which must live as long as the attributes.
void set_payload(nvtxEventAttributes_t& attributes, const Payload& payload, Domain& domain,
                 nvtxPayloadData_t& data) {
  if (const auto* integer = std::get_if<std::int64_t>(&payload)) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    attributes.payload.llValue = *integer;
  } else if (const auto* natural = std::get_if<std::uint64_t>(&payload)) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = *natural;
  } else if (const auto* real = std::get_if<double>(&payload)) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    attributes.payload.dValue = *real;
  }
  const auto* array = std::get_if<std::shared_ptr<const ArrayPayload>>(&payload);
  if (array == nullptr || (*array)->bytes.size() == sizeof(std::uint64_t)) return;  // no element
  data.schemaId = domain.array_schema((*array)->element);
  if (data.schemaId == 0) return;
  data.size = (*array)->bytes.size();
  data.payload = (*array)->bytes.data();
  attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
  attributes.reserved0 = 1;  // how many payloads there are
  attributes.payload.ullValue = NVTX_POINTER_AS_PAYLOAD_ULLVALUE(&data);
}

}  // namespace

Domain& default_domain() { return domains().of_gpuprof; }

Domain& unnamed_domain() { return domains().unnamed; }

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
  Domain& with_handle = &domain == &unnamed_domain() ? default_domain() : domain;
  return with_handle.handle() != nullptr && nvtxDomainIsEnabled(domain.handle()) != 0;
}

struct Range::Prepared {
  nvtxEventAttributes_t attributes{};
  nvtxDomainHandle_t domain = nullptr;
  nvtxPayloadData_t array{};
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
  set_payload(attributes, attributes_.payload, *domain_, prepared->array);
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

void name_thread(std::uint32_t tid, const std::string& name) {
  nvtxNameOsThreadA(tid, name.c_str());
}

void name_stream(std::uintptr_t stream, const std::string& name) {
  nvtxNameCuStreamA(reinterpret_cast<CUstream>(stream), name.c_str());
}

int last_push_result() noexcept { return last_push.load(std::memory_order_relaxed); }

}  // namespace gpuprof::nvtx
