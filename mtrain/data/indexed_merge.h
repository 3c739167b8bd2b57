// merge_indexed() concatenates several .bin/.idx pairs to one, in the order of the pairs.
// Stateless; safe from any thread, for different outputs.
#pragma once
#include <functional>
#include <vector>

#include "mtrain/data/indexed_file.h"
#include "mtrain/data/indexed_writer.h"

namespace mtrain {

struct MergeReport {
  int64_t documents = 0, tokens = 0;
  uint64_t bytes_written = 0;
};

/// Writes the pair at `output`; the element type is the smallest that covers the inputs' types: u8,
/// u16 or i32. Memory holds the longest sequence and a few megabytes, for any size of the inputs.
/// Calls `progress` from time to time with the number of tokens done and the total; an exception
/// from it ends the work and removes the output. Error(data) for a faulty pair, for packs, or for
/// pairs of different tokenizers unless `any_tokenizer`; Error(usage) when an input is also the
/// output.
MT_API MergeReport merge_indexed(const std::vector<fs::path>& inputs, const fs::path& output,
                                 IndexedWriter::Options options,
                                 const std::function<void(int64_t, int64_t)>& progress = {},
                                 bool any_tokenizer = false);

}  // namespace mtrain
