// prepare_dataset: text or JSON lines to a .bin/.idx pair, streaming: memory holds one document, whatever the
// size of the input. The pair appears whole or not at all (indexed_writer.h). Stateless.
//
// Text keeps every character; line ends become "\n". A document is never cut inside a line.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain {

enum class InputFormat : uint8_t { by_extension, text, jsonl };
/// What is one document of a text file. Blank lines belong to the document before them, so documents laid end
/// to end are the file.
enum class SplitOn : uint8_t { file, lines, blank_lines };
/// What to do with a broken input: stop; repair broken UTF-8 by U+FFFD (anything else still stops); leave it
/// out.
enum class OnBad : uint8_t { fail, replace, skip };

struct PrepareOptions {
  std::vector<fs::path> inputs;
  fs::path output;  // the prefix of the pair
  InputFormat format = InputFormat::by_extension;
  bool append_eod = false;
  bool overwrite = false;
  std::string json_key = "text";
  SplitOn split_on = SplitOn::file;
  /// text: also end a document at the first line end after so many bytes; 0: do not
  uint64_t document_bytes = 0;
  uint64_t max_document_bytes = uint64_t{64} << 20;  // a longer line or document is an error
  OnBad on_bad = OnBad::fail;
  /// more broken inputs than this are an error even when they are replaced or left out
  int64_t max_bad = 1000;
};

struct PrepareReport {
  int64_t documents = 0;        // written
  int64_t empty_documents = 0;  // of them, without any text
  int64_t tokens = 0;
  int64_t replaced = 0, skipped = 0;  // broken inputs
  uint64_t bytes_read = 0, bytes_total = 0;
  uint64_t bytes_written = 0;
  double seconds = 0;
};

/// Called every few megabytes of input and at the end. What it throws ends the preparation.
using PrepareProgress = std::function<void(const PrepareReport&)>;

/// Error(data) names file and line; Error(io) for what the system refuses; Error(config) when an end of
/// document is wanted but the tokenizer has none.
MT_API PrepareReport prepare_dataset(const Tokenizer& tokenizer, const PrepareOptions& options,
                                     const PrepareProgress& progress = {});

}  // namespace mtrain
