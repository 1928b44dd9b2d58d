// Ranges in a build without NVTX's headers: nobody listens.
#include <utility>

#include "nvtx/range.hpp"

namespace gpuprof::nvtx {

class Domain {};

struct Range::Prepared {};

Domain& default_domain() {
  static Domain domain;
  return domain;
}

Domain& unnamed_domain() { return default_domain(); }

Domain& domain_named(std::string_view /*name*/) { return default_domain(); }

bool tool_listens(Domain& /*domain*/) { return false; }

Range::Range(Domain& domain, std::string label, Attributes attributes)
    : domain_(&domain), label_(std::move(label)), attributes_(std::move(attributes)) {}

Range::~Range() = default;

void Range::prepare() {}

void Range::push() {}

std::uint64_t Range::start() { return 0; }

void Range::mark() {}

void pop(Domain& /*domain*/) noexcept {}

void end(Domain& /*domain*/, std::uint64_t /*number*/) noexcept {}

void name_thread(std::uint32_t /*tid*/, const std::string& /*name*/) {}

void name_stream(std::uintptr_t /*stream*/, const std::string& /*name*/) {}

int last_push_result() noexcept { return kNoTracking; }

}  // namespace gpuprof::nvtx
