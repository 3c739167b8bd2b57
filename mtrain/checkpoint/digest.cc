#include "mtrain/checkpoint/digest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/hash.h"
#include "mtrain/checkpoint/step_reader.h"
#include "mtrain/checkpoint/store.h"

namespace mtrain {
namespace {

constexpr int64_t kHashedPieceBytes = 16 << 20;

/// Splits `box` into consecutive boxes in row-major order, each of at most `max_elements` elements
/// (at least one), and visits them.
template <class Visit>
void for_each_piece(const Box& box, int dim, int64_t max_elements, Visit&& visit) {
  if (box.extent.numel() <= max_elements || dim == box.extent.rank()) return visit(box);
  int64_t row = box.extent.numel() / box.extent[dim];
  int64_t step = std::max<int64_t>(1, max_elements / row);
  for (int64_t at = 0; at < box.extent[dim]; at += step) {
    Box piece = box;
    piece.offset[dim] += at;
    piece.extent[dim] = std::min(step, box.extent[dim] - at);
    for_each_piece(piece, dim + 1, max_elements, visit);
  }
}

}  // namespace

CheckpointContent inspect_checkpoint(const fs::path& step_folder) {
  CheckpointContent out;
  StepReader reader(step_folder);
  reader.verify_all();
  reader.verify_headers();
  const Manifest& manifest = reader.manifest();
  Sha256 hash;
  auto line = [&](std::string_view key, std::string_view value) {
    hash.update(cat(key, ' ', value.size(), '\n', value, '\n'));
  };
  line("step", cat(manifest.step));
  auto meta = nlohmann::json::parse(manifest.meta);
  for (const char* key : {"rng", "cursor", "state"})
    if (meta.contains(key)) line(key, meta[key].dump());

  std::vector<std::byte> piece_bytes;
  for (const auto& tensor : manifest.tensors) {
    line("tensor", tensor.name);
    line("dtype", name(tensor.dtype));
    line("shape", cat(tensor.global));
    const auto width = static_cast<int64_t>(size_of(tensor.dtype));
    bool finite = true;
    for_each_piece(whole_box(tensor.global), 0, kHashedPieceBytes / width, [&](const Box& piece) {
      piece_bytes.resize(static_cast<size_t>(piece.extent.numel() * width));
      reader.read(tensor, piece, piece_bytes);
      hash.update(piece_bytes);
      finite = finite && !first_nonfinite(tensor.dtype, piece_bytes);
    });
    if (!finite) out.nonfinite.push_back(tensor.name);
  }
  out.digest = hash.hex();
  return out;
}

std::string checkpoint_digest(const fs::path& step_folder) {
  return inspect_checkpoint(step_folder).digest;
}

}  // namespace mtrain
