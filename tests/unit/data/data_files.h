// What the tests of mtrain/data share: a scratch folder, the shared sample data, and the shape of
// an expected failure.
#pragma once
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "roots.h"

namespace mtrain::testing {

/// A temporary folder, removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "mtrain-data-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw Error(ErrorClass::io, cat("cannot make ", name));
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  fs::path operator/(std::string_view name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline void put(const fs::path& path, std::string_view content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
}

/// The text as a gzip file that stores it. REQUIRES: at most 65535 bytes.
inline std::string stored_gzip(std::string_view text) {
  uint32_t crc = ~0U;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320U : 0U);
  }
  std::string out("\x1F\x8B\x08\0\0\0\0\0\0\xFF\x01", 11);
  const auto add = [&](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  };
  add(text.size(), 2);
  add(~text.size(), 2);
  out += text;
  add(~crc, 4);
  add(text.size(), 4);
  return out;
}

/// A folder of the shared sample data; empty, with a message, when this machine does not have it.
inline fs::path shared_data(std::string_view folder) {
  fs::path path = shared_root() / "data" / folder;
  if (fs::exists(path)) return path;
  MESSAGE("skipped: no sample data at " << path.string());
  return {};
}

/// Runs `action`, which must throw an Error of this class whose text contains every one of `parts`.
inline void expect_error(ErrorClass error_class, std::initializer_list<std::string> parts,
                         const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    std::string text = error.message() + "\n" + error.hint();
    CHECK_MESSAGE(error.error_class() == error_class, text);
    for (const auto& part : parts)
      CHECK_MESSAGE(text.find(part) != std::string::npos, "wanted '", part, "' in: ", text);
    return;
  }
  FAIL_CHECK("no error; wanted one of class " << std::string(name(error_class)));
}

}  // namespace mtrain::testing
