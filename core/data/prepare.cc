#include "mtrain/data/prepare.h"

#include <chrono>

#include "mtrain/base/error.h"
#include "mtrain/data/document_reader.h"
#include "mtrain/data/indexed_writer.h"

namespace mtrain {
namespace {

constexpr uint64_t kProgressBytes = uint64_t{4} << 20;

uint64_t size_of_inputs(const std::vector<fs::path>& inputs) {
  uint64_t total = 0;
  for (const auto& path : inputs) {
    std::error_code error;
    auto size = fs::file_size(path, error);
    if (!error) total += size;
  }
  return total;
}

class Preparation {
 public:
  Preparation(const Tokenizer& tokenizer, const PrepareOptions& options, const PrepareProgress& progress)
      : tokenizer_(tokenizer), options_(options), progress_(progress), bad_(options.on_bad, options.max_bad) {
    MT_USER_CHECK(!options.inputs.empty(), ErrorClass::config, "no input file",
                  "name at least one: --input FILE");
    if (options.append_eod) {
      MT_USER_CHECK(tokenizer.eod(), ErrorClass::config,
                    cat("the tokenizer ", tokenizer.name(), " has no end-of-document token"),
                    "leave --append-eod out");
      eod_ = tokenizer.eod();
    }
    report_.bytes_total = size_of_inputs(options.inputs);
  }

  PrepareReport run() {
    // Faults in the names and starts of all inputs come before the work.
    for (const auto& input : options_.inputs)
      if (std::error_code ignored; !fs::is_fifo(input, ignored)) open_documents(input, options_, bad_);
    IndexedWriter writer(options_.output, token_dtype(tokenizer_.vocab_size()),
                         {.overwrite = options_.overwrite});
    for (const auto& input : options_.inputs) {
      auto documents = open_documents(input, options_, bad_);
      const uint64_t before = report_.bytes_read;
      while (documents->next(text_)) {
        add(writer);
        report_.bytes_read = before + documents->bytes();
        if (report_.bytes_read >= next_progress_) tell();
      }
      report_.bytes_read = before + documents->bytes();
    }
    MT_USER_CHECK(report_.tokens > 0, ErrorClass::data,
                  cat("there is no text in ", options_.inputs[0].string(),
                      options_.inputs.size() > 1 ? " and the other inputs" : ""),
                  "check the files");
    writer.finish();
    report_.bytes_written = writer.bin_bytes();
    tell();
    return report_;
  }

 private:
  void add(IndexedWriter& writer) {
    ids_.clear();
    tokenizer_.encode_to(text_, ids_);
    if (eod_ && !ids_.empty()) ids_.push_back(*eod_);
    if (!ids_.empty()) writer.add_sequence(ids_);  // an empty document has no sequence, as in Megatron's tool
    writer.end_document();
    ++report_.documents;
    report_.empty_documents += ids_.empty();
    report_.tokens += static_cast<int64_t>(ids_.size());
  }

  void tell() {
    next_progress_ = report_.bytes_read + kProgressBytes;
    report_.replaced = bad_.replaced;
    report_.skipped = bad_.skipped;
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    if (progress_) progress_(report_);
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  const PrepareProgress& progress_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  BadInputs bad_;
  PrepareReport report_;
  std::optional<int32_t> eod_;
  std::string text_;
  std::vector<int32_t> ids_;
  uint64_t next_progress_ = kProgressBytes;
};

}  // namespace

PrepareReport prepare_dataset(const Tokenizer& tokenizer, const PrepareOptions& options,
                              const PrepareProgress& progress) {
  return Preparation(tokenizer, options, progress).run();
}

}  // namespace mtrain
