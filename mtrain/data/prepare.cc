#include "mtrain/data/prepare.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <set>
#include <thread>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/data/batch_encoder.h"
#include "mtrain/data/indexed_writer.h"
#include "mtrain/data/ordered_pool.h"
#include "mtrain/data/tokenizer_record.h"

namespace mtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kProgressEvery = std::chrono::milliseconds(200);
constexpr size_t kBatchesAhead = 3;          // batches per worker
constexpr uint64_t kBytesAhead = 48u << 20;  // bytes of input that workers process at a time
constexpr size_t kMostBadReported = 20;

void check(const Tokenizer& tokenizer, const PrepareOptions& options) {
  MT_USER_CHECK(!options.append_eod || tokenizer.eod(), ErrorClass::config,
                cat("the tokenizer ", tokenizer.name(), " has no end-of-document token"),
                "leave --append-eod out");
  MT_USER_CHECK(!options.json_keys.empty() && (options.key_names || options.json_keys.size() == 1),
                ErrorClass::config,
                cat("one pair was requested for ", counted(options.json_keys.size(), "JSON field")),
                "name one field by --json-key, or several by --json-keys, each of which becomes a "
                "pair");
  std::set<std::string> names;
  for (const auto& key : options.json_keys) {
    MT_USER_CHECK(names.insert(key).second, ErrorClass::config,
                  cat("--json-keys names the field '", printable(key), "' twice"),
                  "name each field once: each becomes a pair");
    MT_USER_CHECK(
        !key.empty() && (!options.key_names || key.find('/') == key.npos), ErrorClass::config,
        cat("--json-keys: the field '", printable(key), "' cannot be part of a file's name"),
        "name fields without slashes");
  }
}

std::vector<fs::path> output_names(const PrepareOptions& options) {
  if (!options.key_names) return {options.output};
  std::vector<fs::path> out;
  for (const auto& key : options.json_keys)
    out.push_back(fs::path(options.output) +=
                  cat("_", key, options.split_sentences ? "_sentence" : "_document"));
  return out;
}

int worker_count(int wanted) {
  return wanted > 0 ? wanted : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

class Preparation {
 public:
  Preparation(const Tokenizer& tokenizer, const PrepareOptions& options,
              const PrepareProgress& progress)
      : tokenizer_(tokenizer), options_(options), progress_(progress), reader_(options) {
    MT_USER_CHECK(reader_.json_only() || (!options.key_names && options.json_keys.size() == 1),
                  ErrorClass::config, "--json-keys is for JSON lines, but an input is text",
                  "prepare text inputs separately");
    MT_USER_CHECK(!reader_.text_only() || options.json_keys == PrepareOptions().json_keys,
                  ErrorClass::config,
                  cat("--json-key '", printable(options.json_keys[0]),
                      "' names a field of JSON lines, but all inputs are text"),
                  "leave it out; JSON lines under another name than .jsonl: --format jsonl");
    MT_USER_CHECK(
        !reader_.json_only() || (options.split_on == SplitOn::file && options.document_bytes == 0),
        ErrorClass::config,
        "--split-on and --document-bytes divide text, and each JSON line is a document",
        "leave them out, or divide long lines into several");
    report_.outputs = output_names(options);
    report_.bytes_total = reader_.file_bytes_total();
  }

  PrepareReport run() {
    for (const auto& output : report_.outputs)
      writers_.push_back(
          std::make_unique<IndexedWriter>(output, token_dtype(tokenizer_.vocab_size()),
                                          IndexedWriter::Options{.overwrite = options_.overwrite}));
    encode_all();
    MT_USER_CHECK(report_.tokens > 0, ErrorClass::data,
                  cat("there is no text in ", options_.inputs[0].string(),
                      options_.inputs.size() > 1 ? " and the other inputs" : ""),
                  "check the files");
    report_progress();  // the last point where the caller can stop the work
    for (auto& writer : writers_) {
      writer->finish();
      report_.bytes_written += writer->bin_bytes();
    }
    for (size_t i = 0; i < writers_.size(); ++i)
      write_tokenizer_record(report_.outputs[i],
                             tokenizer_record(tokenizer_, writers_[i]->num_tokens()));
    report_.seconds = seconds();
    return report_;
  }

 private:
  using Pool = OrderedPool<InputBatch, EncodedBatch>;

  void encode_all() {
    const int workers = worker_count(options_.workers);
    Pool pool(workers, [this]() -> Pool::Work {
      auto encoder = std::make_shared<BatchEncoder>(tokenizer_, options_);
      return [encoder](InputBatch& batch) { return encoder->encode(batch); };
    });
    std::deque<size_t> sizes;  // sizes of the batches in the pool
    uint64_t ahead = 0;
    auto take = [&] {
      add(pool.pop());
      ahead -= sizes.front();
      sizes.pop_front();
    };
    InputBatch batch;
    std::exception_ptr fault;
    for (;;) {
      try {
        if (!reader_.next(batch)) break;
      } catch (const Error&) {
        fault = std::current_exception();  // reported after the faults of earlier batches
        break;
      }
      sizes.push_back(batch.bytes.size());
      if (!batch.json)
        report_.text_lines += std::count(batch.bytes.begin(), batch.bytes.end(), '\n');
      ahead += batch.bytes.size();
      pool.push(std::move(batch));
      while (pool.size() > static_cast<size_t>(workers) * kBatchesAhead ||
             (ahead > kBytesAhead && pool.size() > 1))
        take();
    }
    while (pool.size() > 0) take();
    if (fault) std::rethrow_exception(fault);
    report_.bytes_read =
        batch.file_bytes;  // includes data after the last batch: blank lines, padding
    report_.text_bytes = batch.text_bytes;
  }

  void add(const EncodedBatch& batch) {
    for (const auto& bad : batch.bad) count(batch, bad);
    for (size_t k = 0; k < writers_.size(); ++k) {
      const EncodedField& field = batch.fields[k];
      IndexedWriter& writer = *writers_[k];
      const int32_t* ids = field.ids.data();
      uint32_t sequence = 0;
      for (uint32_t bound : field.bounds) {
        report_.empty_documents += bound == sequence;
        for (; sequence < bound; ++sequence) {
          const auto length = static_cast<size_t>(field.lengths[sequence]);
          writer.add_sequence({ids, length});
          ids += length;
        }
        writer.end_document();
      }
      report_.tokens += static_cast<int64_t>(field.ids.size());
      report_.sequences += static_cast<int64_t>(field.lengths.size());
    }
    report_.documents += static_cast<int64_t>(batch.fields[0].bounds.size());
    report_.bytes_read = batch.file_bytes;
    report_.text_bytes = batch.text_bytes;
    if (Clock::now() >= next_progress_) report_progress();
  }

  void count(const EncodedBatch& batch, const BadLine& bad) {
    std::string place = cat(batch.source, ":", bad.line, ": ");
    if (!bad.repaired && options_.on_bad != OnBad::skip)
      throw Error(ErrorClass::data, place + bad.fault, bad.hint);
    ++(bad.repaired ? report_.replaced : report_.skipped);
    if (report_.bad.size() < kMostBadReported) report_.bad.push_back(place + bad.fault);
    MT_USER_CHECK(report_.replaced + report_.skipped <= options_.max_bad, ErrorClass::data,
                  cat(place, "more than ", counted(options_.max_bad, "invalid line"), "; this one ",
                      bad.fault),
                  "look at the file, or raise --max-bad");
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  void report_progress() {
    next_progress_ = Clock::now() + kProgressEvery;
    report_.seconds = seconds();
    if (progress_) progress_(report_);
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  const PrepareProgress& progress_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_progress_ = begin_ + kProgressEvery;
  BatchReader reader_;
  std::vector<std::unique_ptr<IndexedWriter>> writers_;
  PrepareReport report_;
};

}  // namespace

PrepareReport prepare_dataset(const Tokenizer& tokenizer, const PrepareOptions& options,
                              const PrepareProgress& progress) {
  check(tokenizer, options);
  return Preparation(tokenizer, options, progress).run();
}

}  // namespace mtrain
