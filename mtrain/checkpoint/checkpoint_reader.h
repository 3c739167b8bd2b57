// CheckpointReader: one step of a store, opened once for many loads: its manifest is parsed once,
// and each stored piece is verified when the first load needs it. Holds the files open, so a step
// that is removed meanwhile can still be read. Not synchronised: one thread at a time.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "mtrain/checkpoint/store.h"

namespace mtrain {

class StepReader;

class MT_API CheckpointReader {
 public:
  /// Error(checkpoint) when the step is absent or its manifest or a file's size is not valid.
  CheckpointReader(const CheckpointStore& store, int64_t step);
  ~CheckpointReader();
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;

  /// Fills the slices; throws what CheckpointStore::load throws.
  void load(std::span<Slice> slices, LoadOptions options = {});
  std::vector<StoredTensorInfo> tensors() const;
  const fs::path& folder() const;

 private:
  std::unique_ptr<StepReader> reader_;
};

}  // namespace mtrain
