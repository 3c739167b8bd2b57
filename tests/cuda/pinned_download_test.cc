#include "pinned_download.h"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "fake_device.h"

using namespace mtrain;
using cuda::PinnedDownload;
using testing::FakeDevice;

namespace {

void* const kStream = reinterpret_cast<void*>(1);
constexpr size_t kPiece = PinnedDownload::kPiece;

std::vector<uint32_t> values(size_t bytes) {
  std::vector<uint32_t> out(bytes / sizeof(uint32_t));
  std::iota(out.begin(), out.end(), 7u);
  return out;
}

}  // namespace

TEST_CASE("downloads of every size arrive whole, through as many pieces as there are") {
  for (size_t pieces : {size_t{0}, size_t{1}, size_t{2}, size_t{5}}) {
    FakeDevice device(0);
    device.host_limit = pieces;
    PinnedDownload download(device);
    for (size_t bytes : {size_t{4}, kPiece - 4, kPiece, kPiece + 4, 2 * kPiece, 5 * kPiece + 400}) {
      CAPTURE(pieces);
      CAPTURE(bytes);
      auto from = values(bytes);
      std::vector<uint32_t> to(from.size());
      download.run(to.data(), from.data(), bytes, kStream);
      CHECK(std::memcmp(to.data(), from.data(), bytes) == 0);
      CHECK(device.open_copies() == 0);
    }
    CHECK(device.host_mallocs ==
          std::min<int>(static_cast<int>(pieces), 2));  // the same ones again
  }
}

TEST_CASE("one piece is filled while the other is emptied") {
  FakeDevice device(0);
  PinnedDownload download(device);
  auto from = values(6 * kPiece);
  std::vector<uint32_t> to(from.size());
  download.run(to.data(), from.data(), 6 * kPiece, kStream);
  CHECK(device.host_waits == 6);
  CHECK(device.most_open_copies == 2);
}

TEST_CASE("a download that fails leaves its pieces for the next, and they go back at the end") {
  FakeDevice device(0);
  {
    auto from = values(4 * kPiece);
    std::vector<uint32_t> to(from.size());
    PinnedDownload download(device);
    device.fail_copies_from = 3;
    CHECK_THROWS(download.run(to.data(), from.data(), 4 * kPiece, kStream));
    device.fail_copies_from = 0;
    download.run(to.data(), from.data(), 4 * kPiece, kStream);
    CHECK(to == from);
    CHECK(device.host_mallocs == 2);
  }
  CHECK(device.host_frees == 2);
}
