// prepare_dataset() converts text or JSON lines to .bin/.idx pairs. It streams: memory holds a few
// batches of input, for any size of the input. A pair is written atomically (indexed_writer.h), and
// its bytes do not depend on the number of workers. Stateless; safe from any thread, for different
// outputs.
//
// PREFIX.tokenizer.json records the tokenizer of the pair (tokenizer_record.h).
//
// Text keeps every character; line ends become "\n". A document is never split inside a line.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain {

enum class InputFormat : uint8_t { by_extension, text, jsonl };
/// The unit of a document in a text file. Blank lines belong to the document before them, so the
/// concatenated documents equal the file.
enum class SplitOn : uint8_t { file, lines, blank_lines };
/// The policy for broken input: stop; replace broken UTF-8 by U+FFFD (any other fault still stops);
/// skip it.
enum class OnBad : uint8_t { fail, replace, skip };

struct PrepareOptions {
  /// files, folders (all texts and JSON lines below them except hidden ones, by path), "-" for
  /// standard input; ".gz" and ".zst" files are decompressed
  std::vector<fs::path> inputs;
  fs::path output;  // the prefix of the pair
  InputFormat format = InputFormat::by_extension;
  int workers = 0;  // threads that parse and tokenize; 0: one per core
  bool append_eod = false;
  bool add_special =
      false;  // add the special tokens around each text that the tokenizer's file defines
  bool overwrite = false;
  /// The fields of each JSON line that hold text: a string, or a list of strings, each of which
  /// becomes a separate sequence.
  std::vector<std::string> json_keys = {"text"};
  /// Write one pair per field with the names of Megatron's tool: PREFIX_KEY_document, or
  /// PREFIX_KEY_sentence with split_sentences. Otherwise there is one field, and its pair is
  /// PREFIX.
  bool key_names = false;
  bool split_sentences = false;  // each sentence of a document is a separate sequence
  SplitOn split_on = SplitOn::file;
  /// text: also end a document at the first line end after this many bytes; 0: no limit
  uint64_t document_bytes = 0;
  uint64_t max_document_bytes = uint64_t{64} << 20;  // a longer line or document is an error
  OnBad on_bad = OnBad::fail;
  /// more broken inputs than this are an error even when they are replaced or skipped
  int64_t max_bad = 1000;
};

struct PrepareReport {
  std::vector<fs::path> outputs;      // the prefixes of the pairs
  int64_t documents = 0;              // written to each pair
  int64_t empty_documents = 0;        // documents without text, in all pairs
  int64_t sequences = 0, tokens = 0;  // of all pairs
  int64_t replaced = 0, skipped = 0;  // broken inputs
  std::vector<std::string> bad;       // the first of these: "path:7: has no field 'text'"
  uint64_t bytes_read = 0;            // of the files
  uint64_t bytes_total = 0;           // size of the files; 0: not known
  uint64_t text_bytes = 0;            // read, after decompression
  uint64_t bytes_written = 0;
  int64_t text_lines = 0;  // lines with a line end, in text inputs
  double seconds = 0;
};

/// Called a few times per second and at the end, on the calling thread. An exception from it ends
/// the preparation.
using PrepareProgress = std::function<void(const PrepareReport&)>;

/// Error(data) names file and line of the first fault, independent of the number of workers;
/// Error(io) for errors of the system; Error(config) when append_eod is set but the tokenizer has
/// no end-of-document token.
MT_API PrepareReport prepare_dataset(const Tokenizer& tokenizer, const PrepareOptions& options,
                                     const PrepareProgress& progress = {});

}  // namespace mtrain
