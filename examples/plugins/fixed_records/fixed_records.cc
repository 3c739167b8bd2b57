// Records of equal width from a binary file: record r holds seq_length + 1 ids, little-endian, and
// is one sample: each id predicts the next one. There is no header, so `split -b` and `cat` divide
// and join such files. Every epoch has an order of its own, which follows from the seed.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/rng.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin.h"

namespace {

using namespace mtrain;
static_assert(std::endian::native == std::endian::little, "ids are read as they are stored");

constexpr int64_t kEndless = int64_t{1} << 62;

struct RecordsConfig {
  std::string path;
  int64_t id_bytes = 2;
  double valid_share = 0.05;
  bool shuffle = true;
  void bind(Fields& f) {
    using enum ResumeClass;
    f("path", path, "the file of records").required().input_path().example("data/records.bin");
    f("id_bytes", id_bytes, "bytes of one id: 1, 2 or 4").min(1).max(4).resume(data);
    f("valid_share", valid_share, "share of the records, the last ones, that validate")
        .min(0)
        .exclusive_max(1)
        .resume(data);
    f("shuffle", shuffle, "draw the order of each epoch; otherwise the file's").resume(data);
  }
};

/// A permutation of [0, size) that needs no memory: four rounds of a Feistel network over the next
/// power of four, repeated until the value is below `size` (cycle walking).
class Permutation {
 public:
  Permutation(uint64_t seed, uint64_t epoch, int64_t size)
      : random_(seed, "fixed_records.order", epoch), size_(static_cast<uint64_t>(size)) {
    while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
  }
  int64_t operator()(int64_t index) const {
    auto x = static_cast<uint64_t>(index);
    do x = mix(x);
    while (x >= size_);
    return static_cast<int64_t>(x);
  }

 private:
  uint64_t mix(uint64_t x) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (random_.words(round << 32 | right)[0] & mask);
      left = right, right = next;
    }
    return left << half_bits_ | right;
  }
  RngStream random_;
  uint64_t size_;
  int half_bits_ = 1;
};

/// The file, its records counted. Immutable.
class Records {
 public:
  Records(const RecordsConfig& config, const DatasetContext& context)
      : file_(context.base_directory / config.path),
        id_bytes_(config.id_bytes),
        width_(context.seq_length + 1),
        vocab_(context.tokenizer ? context.tokenizer->vocab_size() : int64_t{INT32_MAX}) {
    const auto bytes = static_cast<int64_t>(file_.bytes().size()), record = width_ * id_bytes_;
    MT_USER_CHECK(bytes > 0 && bytes % record == 0, ErrorClass::data,
                  cat(file_.path().string(), " has ", bytes, " bytes, which is no whole number of ",
                      "records of ", record, " bytes (", width_, " ids of ", id_bytes_, ")"),
                  cat("choose dataset.id_bytes and model.seq_length (ids of a record minus 1) as ",
                      "the file was written"));
    count_ = bytes / record;
    file_.advise_random();
  }
  int64_t count() const { return count_; }

  void read(int64_t record, Sample& out) const {
    for (int64_t i = 0; i < width_; ++i) {
      const int32_t id = id_at(record, i);
      const auto at = static_cast<size_t>(i);
      if (i > 0) out.targets[at - 1] = id;
      if (i + 1 == width_) break;
      out.tokens[at] = id;
      out.positions[at] = static_cast<int32_t>(i);
    }
    out.starts.assign(1, 0);
  }

  std::string identity() const {
    return cat("\"bytes\":", file_.bytes().size(), ",\"crc32c\":", crc32c(file_.bytes()),
               ",\"id_bytes\":", id_bytes_);
  }

 private:
  int32_t id_at(int64_t record, int64_t i) const {
    uint32_t id = 0;
    std::memcpy(&id, file_.bytes().data() + (record * width_ + i) * id_bytes_,
                static_cast<size_t>(id_bytes_));
    if (int64_t{id} >= vocab_)
      throw Error(ErrorClass::data,
                  cat(file_.path().string(), ": record ", record, ", id ", i, " is ", id,
                      ", and the tokenizer's ids are below ", vocab_),
                  "choose the tokenizer and dataset.id_bytes that the file was written with");
    return static_cast<int32_t>(id);
  }
  MappedFile file_;
  int64_t id_bytes_, width_, vocab_, count_ = 0;
};

/// Records [begin, begin + count) of a file, again and again.
class RecordsSource final : public SampleSource {
 public:
  RecordsSource(std::shared_ptr<const Records> records, int64_t begin, int64_t count, int64_t size,
                uint64_t seed, bool shuffle)
      : records_(std::move(records)),
        begin_(begin),
        count_(count),
        size_(size),
        seed_(seed),
        shuffle_(shuffle) {}
  int64_t size() const override { return size_; }
  void get(int64_t index, Sample& out) const override {
    const int64_t epoch = index / count_, at = index % count_;
    const Permutation order(seed_, static_cast<uint64_t>(epoch), count_);
    records_->read(begin_ + (shuffle_ ? order(at) : at), out);
  }

 private:
  std::shared_ptr<const Records> records_;
  int64_t begin_, count_, size_;
  uint64_t seed_;
  bool shuffle_;
};

class FixedRecords final : public Dataset {
 public:
  FixedRecords(const RecordsConfig& config, DatasetContext& context)
      : config_(config), context_(context) {
    MT_USER_CHECK(config.id_bytes != 3, ErrorClass::config, "dataset.id_bytes is 3",
                  "choose 1, 2 or 4");
    records_ = std::make_shared<Records>(config, context);
  }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    const auto valid = static_cast<int64_t>(
        std::floor(static_cast<double>(records_->count()) * config_.valid_share));
    const int64_t train = records_->count() - valid, count = which == Split::train ? train : valid;
    MT_USER_CHECK(which != Split::test, ErrorClass::data, "fixed_records has no test split",
                  "evaluate the valid split");
    MT_USER_CHECK(count > 0, ErrorClass::data,
                  cat(config_.path, " has no records for the ", mtrain::name(which), " split"),
                  which == Split::train
                      ? "lower dataset.valid_share"
                      : "raise dataset.valid_share, or turn validation off: validation.steps=0");
    return std::make_unique<RecordsSource>(records_, which == Split::train ? 0 : train, count,
                                           num_samples == kOneEpoch ? count : kEndless,
                                           context_.seed, config_.shuffle && which == Split::train);
  }

  std::string identity() const override {
    return cat("{\"dataset\":\"fixed_records\",", records_->identity(),
               ",\"valid_share\":", config_.valid_share, ",\"shuffle\":", config_.shuffle ? 1 : 0,
               ",\"seq_length\":", context_.seq_length, ",\"seed\":", context_.seed, "}");
  }

 private:
  RecordsConfig config_;
  DatasetContext context_;
  std::shared_ptr<const Records> records_;
};

}  // namespace

MT_PLUGIN("fixed_records", "ids in records of equal width, from a binary file") {
  registry.add<Dataset, FixedRecords, RecordsConfig>(
      "fixed_records", "ids in records of equal width, from a binary file");
}
