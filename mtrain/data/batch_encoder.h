// BatchEncoder encodes a batch of lines or documents to tokens. Not synchronised: each thread has
// its own encoder; the result does not depend on the thread.
#pragma once
#include <optional>
#include <vector>

#include "mtrain/data/input_batch.h"
#include "mtrain/data/json_line.h"
#include "mtrain/data/sentences.h"

namespace mtrain {

/// The tokens of one field of a batch.
struct EncodedField {
  std::vector<int32_t> ids;
  std::vector<int32_t> lengths;  // of sequences
  std::vector<uint32_t> bounds;  // for each document, the number of sequences up to its end
};

struct EncodedBatch {
  std::string source;
  std::vector<EncodedField> fields;
  std::vector<BadLine> bad;
  uint64_t file_bytes = 0, text_bytes = 0;  // read from all inputs so far
};

class MT_API BatchEncoder {
 public:
  /// Both arguments must outlive this object.
  BatchEncoder(const Tokenizer& tokenizer, const PrepareOptions& options);
  EncodedBatch encode(const InputBatch& batch);

 private:
  using Texts = std::vector<std::string_view>;
  bool read_line(const InputBatch& batch, const InputBatch::Item& item, std::vector<BadLine>& bad);
  void add_document(std::vector<EncodedField>& fields, int64_t line, std::vector<BadLine>& bad);
  void encode_texts(const Texts& texts, EncodedField& field);

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  std::optional<int32_t> eod_;
  JsonLine json_;
  std::optional<SentenceSplitter> sentences_;
  std::vector<Texts> texts_;  // of each field of the current document
  Texts pieces_;
  std::string repaired_, escaped_;
};

}  // namespace mtrain
