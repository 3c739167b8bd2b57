// What data is prepared from and read from: indexed pairs, lines of JSON, compressed streams. They
// end with values or with one located fault.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/data/indexed_file.h"
#include "mtrain/data/indexed_summary.h"
#include "mtrain/data/json_line.h"
#include "mtrain/data/line_reader.h"
#include "tests/fuzz/entries.h"
#include "tests/fuzz/want.h"

namespace mtrain::fuzz {
namespace {

/// A folder of this process in memory, where there is such a file system.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string()) +
                       "/mtrain-fuzz-XXXXXX";
    want(::mkdtemp(name.data()) != nullptr, "a folder can be made");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path put(const char* name, std::string_view bytes) const {
    FILE* file = std::fopen((path_ / name).c_str(), "wb");
    want(file != nullptr, "a file can be written");
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const Scratch& scratch() {
  static const Scratch kScratch;
  return kScratch;
}

void use(const IndexedFile& file) {
  int64_t tokens = 0;
  std::vector<int32_t> ids;
  for (int64_t s = 0; s < file.num_sequences(); ++s) {
    ids.resize(static_cast<size_t>(file.length(s)));
    file.read(s, 0, ids);
    const int64_t document = file.document_of(s);
    want(file.document_begin(document) <= s && s < file.document_begin(document + 1),
         "a sequence is in its document");
    file.mode(s);
    tokens += file.length(s);
  }
  want(tokens == file.num_tokens(), "the lengths are those of the tokens");
  want(summarize(file).tokens == tokens, "so is the summary");
  scan_tokens(file, 0);
}

}  // namespace

void indexed(std::string_view bytes) {
  if (bytes.size() < 2) return;
  const size_t size =
      (static_cast<unsigned char>(bytes[0]) << 8 | static_cast<unsigned char>(bytes[1])) % 4096;
  std::string tokens(size, '\0');
  for (size_t i = 0; i < size; ++i) tokens[i] = static_cast<char>(i * 7);
  scratch().put("x.bin", tokens);
  scratch().put("x.idx", bytes.substr(2));
  try {
    use(IndexedFile(scratch().path() / "x"));
  } catch (const Error& fault) {
    want(fault.error_class() == ErrorClass::data, "a fault is the data's");
    want(fault.message().find("x.") != std::string::npos, "a fault names the file");
  }
}

void json_line(std::string_view line) {
  JsonLine fast({"text", "b"}), exact({"text", "b"});
  const std::string padded = std::string(line) + std::string(64, '\0');
  const std::string fault = exact.read_exactly(line);
  if (fast.read_fast(std::string_view(padded).substr(0, line.size()))) {
    want(fault.empty(), "the exact parser takes what the fast one takes");
    for (size_t key : {0, 1}) want(fast.texts(key) == exact.texts(key), "both give the same texts");
  }
  std::string repaired;
  repair_surrogates(line, repaired);
  if (fault.empty())
    for (auto text : exact.texts(0)) want(valid_utf8(text), "texts are UTF-8");
}

void input_stream(std::string_view bytes) {
  const fs::path path = scratch().put("x.txt", bytes);
  try {
    LineReader reader(path, 1 << 20);
    std::string_view line;
    uint64_t lines = 0;
    while (lines < 100'000 && reader.next(line)) ++lines;
    want(static_cast<int64_t>(lines) == reader.line_number(), "lines are counted");
  } catch (const Error& fault) {
    want(fault.error_class() == ErrorClass::data, "a fault is the data's");
    want(fault.message().find("x.txt") != std::string::npos, "a fault names the file");
  }
}

}  // namespace mtrain::fuzz
