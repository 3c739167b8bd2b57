// prepare_dataset: text or JSON lines to .bin/.idx pairs, streaming: memory holds a few batches of
// input, whatever its size. A pair appears whole or not at all (indexed_writer.h), and is the same
// byte for byte whatever the number of workers. Stateless.
//
// PREFIX.tokenizer.json says which tokenizer made the pair (tokenizer_record.h).
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
/// What is one document of a text file. Blank lines belong to the document before them, so
/// documents laid end to end are the file.
enum class SplitOn : uint8_t { file, lines, blank_lines };
/// What to do with a broken input: stop; repair broken UTF-8 by U+FFFD (anything else still stops);
/// leave it out.
enum class OnBad : uint8_t { fail, replace, skip };

struct PrepareOptions {
  /// files, folders (all texts and JSON lines below them, by path), "-" for standard input; ".gz"
  /// and ".zst" are read as what they hold
  std::vector<fs::path> inputs;
  fs::path output;  // the prefix of the pair
  InputFormat format = InputFormat::by_extension;
  int workers = 0;  // threads that parse and tokenize; 0: one for each core
  bool append_eod = false;
  bool add_special = false;  // put around each text what the tokenizer's file asks for
  bool overwrite = false;
  /// The fields of each JSON line that hold text: a string, or a list of strings, each of which
  /// becomes a sequence of its own.
  std::vector<std::string> json_keys = {"text"};
  /// A pair for each field under the names of Megatron's tool: PREFIX_KEY_document, or
  /// PREFIX_KEY_sentence with split_sentences. Otherwise there is one field, and its pair is
  /// PREFIX.
  bool key_names = false;
  bool split_sentences = false;  // each sentence of a document is a sequence of its own
  SplitOn split_on = SplitOn::file;
  /// text: also end a document at the first line end after so many bytes; 0: do not
  uint64_t document_bytes = 0;
  uint64_t max_document_bytes = uint64_t{64} << 20;  // a longer line or document is an error
  OnBad on_bad = OnBad::fail;
  /// more broken inputs than this are an error even when they are replaced or left out
  int64_t max_bad = 1000;
};

struct PrepareReport {
  std::vector<fs::path> outputs;      // the prefixes of the pairs
  int64_t documents = 0;              // written to each pair
  int64_t empty_documents = 0;        // of all pairs, without any text
  int64_t sequences = 0, tokens = 0;  // of all pairs
  int64_t replaced = 0, skipped = 0;  // broken inputs
  std::vector<std::string> bad;       // the first of these: "path:7: has no field 'text'"
  uint64_t bytes_read = 0;            // of the files
  uint64_t bytes_total = 0;           // that the files have; 0: not known
  uint64_t text_bytes = 0;            // read, after decompression
  uint64_t bytes_written = 0;
  int64_t text_lines = 0;  // that end in a line end, of inputs that are text
  double seconds = 0;
};

/// Called a few times a second and at the end, on the calling thread. What it throws ends the
/// preparation.
using PrepareProgress = std::function<void(const PrepareReport&)>;

/// Error(data) names file and line, those of the first fault whatever the number of workers;
/// Error(io) for what the system refuses; Error(config) when an end of document is wanted but the
/// tokenizer has none.
MT_API PrepareReport prepare_dataset(const Tokenizer& tokenizer, const PrepareOptions& options,
                                     const PrepareProgress& progress = {});

}  // namespace mtrain
