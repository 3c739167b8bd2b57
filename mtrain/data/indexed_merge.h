// merge_indexed: several .bin/.idx pairs as one, their documents in the order of the pairs.
// Stateless.
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

/// Writes the pair at `output`; tokens take as many bytes as in the widest of them. Memory holds
/// the longest sequence and the index, whatever the inputs' size. `progress` is called now and then
/// with tokens done and in all; what it throws ends the work, and nothing is left behind.
/// Error(data) for a pair that is faulty, or one of another tokenizer than the others unless
/// `any_tokenizer`; Error(usage) where one would be its own output.
MT_API MergeReport merge_indexed(const std::vector<fs::path>& inputs, const fs::path& output,
                                 IndexedWriter::Options options,
                                 const std::function<void(int64_t, int64_t)>& progress = {},
                                 bool any_tokenizer = false);

}  // namespace mtrain
