#include "mtrain/checkpoint/checkpoint_reader.h"

#include "mtrain/base/error.h"
#include "mtrain/checkpoint/step_reader.h"

namespace mtrain {
namespace {

[[noreturn]] void mismatch(const fs::path& folder, const std::string& tensor,
                           const std::string& wanted, const std::string& got) {
  throw Error(ErrorClass::checkpoint,
              cat(printable(folder.string()), ": tensor '", printable(tensor), "': wanted ", wanted,
                  ", the checkpoint has ", got),
              "the recipe's model or optimizer differs from the one that was saved");
}

}  // namespace

CheckpointReader::CheckpointReader(const CheckpointStore& store, int64_t step)
    : reader_(std::make_unique<StepReader>(open_step(store.step_folder(step), step))) {}

CheckpointReader::~CheckpointReader() = default;

void CheckpointReader::load(std::span<Slice> slices, LoadOptions options) {
  for (const Slice& slice : slices) {
    const StoredTensor& stored = reader_->at(slice.name);
    if (stored.dtype != slice.dtype)
      mismatch(reader_->folder(), slice.name, name(slice.dtype), name(stored.dtype));
    if (!(stored.global == slice.global))
      mismatch(reader_->folder(), slice.name, cat(slice.global), cat(stored.global));
    reader_->prepare(stored, slice.box());
  }
  for (Slice& slice : slices) {
    reader_->read(reader_->at(slice.name), slice.box(), slice.data);
    if (options.allow_nonfinite) continue;
    if (auto at = first_nonfinite(slice.dtype, slice.data))
      throw Error(
          ErrorClass::numeric,
          cat(printable(reader_->folder().string()), ": tensor '", printable(slice.name),
              "' contains NaN or Inf, first at element ", *at, " of the box ",
              describe(slice.box())),
          "the run had diverged before this checkpoint was saved: resume from an older step");
  }
}

std::vector<StoredTensorInfo> CheckpointReader::tensors() const {
  std::vector<StoredTensorInfo> out;
  for (const auto& tensor : reader_->manifest().tensors)
    out.push_back({tensor.name, tensor.dtype, tensor.global});
  return out;
}

const fs::path& CheckpointReader::folder() const { return reader_->folder(); }

}  // namespace mtrain
