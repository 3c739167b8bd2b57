#include "mtrain/data/indexed_merge.h"

#include <algorithm>
#include <memory>

#include "mtrain/base/error.h"
#include "mtrain/data/tokenizer_record.h"

namespace mtrain {
namespace {

/// The smallest of u8, u16 and i32 that covers the element types of all files.
DType widest(const std::vector<std::unique_ptr<IndexedFile>>& files) {
  DType out = DType::u8;
  for (const auto& file : files) {
    if (file->dtype() == DType::u8) continue;
    if (file->dtype() != DType::u16) return DType::i32;
    out = DType::u16;
  }
  return out;
}

void check_output(const std::vector<fs::path>& inputs, const fs::path& output) {
  for (const auto& input : inputs) {
    std::error_code ignored;
    MT_USER_CHECK(!fs::equivalent(bin_path(input), bin_path(output), ignored), ErrorClass::usage,
                  cat(output.string(), " is one of the pairs to be merged"), "name another output");
  }
}

/// Refuses packs: of their files, a merged pair would have the ids only.
void check_not_packed(const IndexedFile& file) {
  std::error_code ignored;
  MT_USER_CHECK(!fs::exists(packed_record_path(file.prefix()), ignored), ErrorClass::data,
                cat(printable(file.prefix().string()),
                    " has packed records, which are not merged: their loss mask would be lost"),
                "join the files of records to one file, and pack it: mtrain data pack FILE … "
                "--output PREFIX");
}

/// The common tokenizer of all files; without identity when a pair has no record.
TokenizerRecord common_tokenizer(const std::vector<std::unique_ptr<IndexedFile>>& files, bool any) {
  std::optional<TokenizerRecord> first;
  const IndexedFile* of_first = nullptr;
  bool same = true;
  for (const auto& file : files) {
    const auto record = read_tokenizer_record(*file);
    same = same && record && (!first || *first == *record);
    if (record && first && !(*first == *record) && !any)
      throw Error(ErrorClass::data,
                  cat("pairs of different tokenizers\n  ", printable(of_first->prefix().string()),
                      ": ", printable(first->identity), "\n  ", printable(file->prefix().string()),
                      ": ", printable(record->identity)),
                  "prepare them with one tokenizer, or merge them anyway with --any-tokenizer");
    if (record && !first) first = record, of_first = file.get();
  }
  return same && first ? *first : TokenizerRecord{};
}

}  // namespace

MergeReport merge_indexed(const std::vector<fs::path>& inputs, const fs::path& output,
                          IndexedWriter::Options options,
                          const std::function<void(int64_t, int64_t)>& progress,
                          bool any_tokenizer) {
  check_output(inputs, output);
  std::vector<std::unique_ptr<IndexedFile>> files;
  int64_t total = 0;
  for (const auto& input : inputs) {
    files.push_back(std::make_unique<IndexedFile>(input));
    check_not_packed(*files.back());
    total += files.back()->num_tokens();
    options.modes = options.modes || files.back()->has_modes();
  }
  TokenizerRecord record = common_tokenizer(files, any_tokenizer);
  IndexedWriter writer(output, widest(files), options);
  std::vector<int32_t> ids;
  for (const auto& file : files) {
    for (int64_t d = 0; d < file->num_documents(); ++d) {
      for (int64_t s = file->document_begin(d); s < file->document_begin(d + 1); ++s) {
        ids.resize(static_cast<size_t>(file->length(s)));
        file->read(s, 0, ids);
        writer.add_sequence(ids, file->mode(s));
      }
      writer.end_document();
      if (progress && d % 4096 == 0) progress(writer.num_tokens(), total);
    }
  }
  writer.finish();
  record.tokens = writer.num_tokens();
  write_tokenizer_record(output, record);
  return {writer.num_documents(), writer.num_tokens(), writer.bin_bytes()};
}

}  // namespace mtrain
