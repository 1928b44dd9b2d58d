// CUPTI's records: each is read or refused as a whole, and counted once.
#include <deque>
#include <memory>

#include "cupti/collection.hpp"
#include "cupti/library.hpp"
#include "fuzz/input.hpp"

namespace {

using namespace gpuprof::cupti;
using gpuprof::fuzz::must;

constexpr std::size_t kMost = 4;
constexpr std::size_t kSymbol = 104;  // where the pointer to a kernel's name is

const char* name_of(int domain, std::uint32_t id) {
  return id % 2 == 0 ? nullptr : domain == kRuntimeDomain ? "cudaLaunchKernel_v7000" : "cuMemcpy";
}

template <typename Row>
std::size_t check_rows(const std::deque<Row>& rows, const Collection& of) {
  const ClockPair& start = of.start();
  const ClockMap map(start, {start.cupti + 1'000'000, start.host + 1'000'007, 0, true});
  for (const Row& row : rows) {
    must(row.name < of.names().size(), "a row has a name");
    must(row.begin != 0 && row.begin <= row.end, "a row has times");
    must(map.at(row.begin) <= map.at(row.end), "times stay in order on the host's clock");
  }
  return rows.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const LaunchNames launches(&name_of);
  gpuprof::fuzz::Input input(data, size);
  ClockPair start;
  start.cupti = input.number<std::uint64_t>() >> 2U;
  start.host = input.number<std::int64_t>() >> 2U;
  Collection collection(kMost, launches, start);
  std::uint64_t added = 0, unnamed = 0;
  for (; !input.empty(); ++added) {
    // In memory of just that size, so that AddressSanitizer sees what is read behind it.
    const std::string bytes = input.bytes(input.number<std::uint8_t>());
    const std::unique_ptr<std::uint8_t[]> record(new std::uint8_t[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), record.get());
    const int kind = bytes.size() < 4 ? 0 : kind_of(record.get());
    const std::string symbol = input.text();
    if (bytes_read_of(kind) > 0 && bytes.size() >= bytes_read_of(kind)) {
      const char* const place = symbol.empty() ? nullptr : symbol.c_str();
      if (kind == kKernelRecord) std::memcpy(record.get() + kSymbol, &place, sizeof place);
      std::uint32_t id = 0;
      launch_of(record.get(), id);
      if (kind == kDriverRecord || kind == kRuntimeRecord)
        unnamed += 1 - launches.of(kind).count(id);
    }
    collection.add(record.get(), record.get() + bytes.size(),
                   start.host + input.number<std::int32_t>());
  }
  const Counts& counts = collection.counts();
  const std::size_t rows = check_rows(collection.activities(), collection);
  const std::size_t calls = check_rows(collection.launches(), collection);
  must(rows == std::min<std::uint64_t>(counts.activities, kMost), "rows are kept up to the limit");
  must(rows + counts.dropped == counts.activities, "what is dropped is counted");
  must(calls <= 2 * kMost, "calls are kept up to their limit");
  must(counts.activities + calls + counts.launches_dropped + unnamed + counts.untimed +
               counts.unknown ==
           added,
       "each record is counted once");
  std::uint64_t total = 0;
  collection.for_each_total([&](Kind /*kind*/, std::uint32_t name, const Total& of) {
    must(name < collection.names().size(), "a total has a name");
    total += of.count;
  });
  must(total == counts.activities, "totals are of all");
  return 0;
}
