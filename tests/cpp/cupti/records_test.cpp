// Which bytes of CUPTI's records are read, and what they mean.
#include "cupti/records.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace gpuprof::cupti {
namespace {

class Bytes {
 public:
  Bytes(int kind, std::size_t size) : bytes_(size) { put(0, kind); }

  template <typename T>
  Bytes& put(std::size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
    return *this;
  }

  [[nodiscard]] const std::uint8_t* at() const { return bytes_.data(); }

 private:
  std::vector<std::uint8_t> bytes_;
};

TEST(Records, CopiesAndMemsetsHaveTheirsElsewhere) {
  const Bytes copy = Bytes(kMemcpyRecord, 76)
                         .put<std::uint64_t>(8, 64)
                         .put<std::uint32_t>(44, 7)
                         .put<std::uint64_t>(64, 8)
                         .put<std::uint32_t>(72, 9);
  EXPECT_EQ(activity_of(copy.at()).kind, Kind::kMemcpy);
  EXPECT_EQ(activity_of(copy.at()).bytes, 64U);
  EXPECT_EQ(activity_of(copy.at()).correlation, 7U);
  EXPECT_EQ(activity_of(copy.at()).node_id, 8U);
  EXPECT_EQ(activity_of(copy.at()).graph_id, 9U);
  const Bytes peer = Bytes(kPeerCopyRecord, 84)
                         .put<std::uint32_t>(44, 99)  // the source's device
                         .put<std::uint32_t>(60, 7)
                         .put<std::uint64_t>(72, 8)
                         .put<std::uint32_t>(80, 9);
  EXPECT_EQ(activity_of(peer.at()).kind, Kind::kPeerCopy);
  EXPECT_EQ(activity_of(peer.at()).correlation, 7U);
  EXPECT_EQ(activity_of(peer.at()).node_id, 8U);
  EXPECT_EQ(activity_of(peer.at()).graph_id, 9U);
  const Bytes memset = Bytes(kMemsetRecord, 76).put<std::uint64_t>(8, 32);
  EXPECT_EQ(activity_of(memset.at()).kind, Kind::kMemset);
  EXPECT_EQ(activity_of(memset.at()).bytes, 32U);
}

TEST(Records, SoManyBytesAreReadOfEachKind) {
  EXPECT_EQ(bytes_read_of(kKernelRecord), 160U);
  EXPECT_EQ(bytes_read_of(kMemcpyRecord), 76U);
  EXPECT_EQ(bytes_read_of(kPeerCopyRecord), 84U);
  EXPECT_EQ(bytes_read_of(kMemsetRecord), 76U);
  EXPECT_EQ(bytes_read_of(kDriverRecord), 40U);
  EXPECT_EQ(bytes_read_of(kRuntimeRecord), 40U);
  for (const int kind : {0, 3, 6, 11, 51, 100, -1}) EXPECT_EQ(bytes_read_of(kind), 0U) << kind;
}

TEST(Records, CopiesAreNamedByDirectionAndMemory) {
  std::set<std::string> different;
  for (const int kind : {kMemcpyRecord, kPeerCopyRecord, kMemsetRecord}) {
    for (const int copy : {0, 1, 2, 8, 10, 11, 15, 16, 255}) {
      for (int source = 0; source < 10; ++source) {
        for (int destination = 0; destination < 10; ++destination) {
          const Bytes record = Bytes(kind, 84)
                                   .put(4, static_cast<std::uint8_t>(copy))
                                   .put(5, static_cast<std::uint8_t>(source))
                                   .put(6, static_cast<std::uint8_t>(destination))
                                   .put(50, static_cast<std::uint16_t>(destination));
          different.insert(work_name(record.at()));
        }
      }
    }
  }
  // Four directions and an unknown one, from and to eight kinds of memory; memsets of each kind.
  EXPECT_EQ(different.size(), 5U * 8U * 8U + 8U);
  EXPECT_EQ(different.count("Memcpy HtoD (Pinned -> Device)"), 1U);
}

TEST(Records, FunctionsThatQueueWorkAreKnownByTheirNames) {
  EXPECT_EQ(launch_name("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(launch_name("cudaLaunchKernel_ptsz_v7000"), "cudaLaunchKernel");
  EXPECT_EQ(launch_name("__cudaLaunchKernel_ptsz_v13000"), "cudaLaunchKernel");
  EXPECT_EQ(launch_name("cudaLaunchKernelExC_v11060"), "cudaLaunchKernelExC");
  EXPECT_EQ(launch_name("cuLaunchKernelEx_ptsz"), "cuLaunchKernelEx");
  EXPECT_EQ(launch_name("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
  EXPECT_EQ(launch_name("cuMemsetD2D32_v2_ptds"), "cuMemsetD2D32");
  EXPECT_EQ(launch_name("cudaMemcpy2DToArray_v3020"), "cudaMemcpy2DToArray");
  EXPECT_EQ(launch_name("cuGraphLaunch"), "cuGraphLaunch");
  for (const char* other :
       {"cudaLaunchHostFunc_v10000", "cuLaunchHostFunc_ptsz", "cudaGraphKernelNodeSetParams_v10000",
        "cudaMalloc_v3020", "cuMemAlloc_v2", "cuGraphUpload", "cudaGetDevice_v3020", "", "_", "__",
        "_v2", "Launch", "curious"}) {
    EXPECT_EQ(launch_name(other), "") << other;
  }
  EXPECT_EQ(launch_name(nullptr), "");
}

}  // namespace
}  // namespace gpuprof::cupti
