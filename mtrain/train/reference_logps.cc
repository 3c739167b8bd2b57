#include "mtrain/train/reference_logps.h"

#include <unistd.h>

#include <charconv>
#include <cstring>
#include <map>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/checkpoint/safetensors.h"

namespace mtrain {
namespace {

constexpr const char *kKeys = "keys", *kValues = "logps", *kDigest = "sha256",
                     *kTrain = "train_samples", *kValid = "valid_samples",
                     *kTrainBatches = "train_batches", *kValidBatches = "valid_batches";

using ReferenceMetadata = std::map<std::string, std::string>;

int64_t count_of(const SafetensorsFile& file, const char* name) {
  const auto found = file.metadata().find(name);
  int64_t count = -1;
  if (found != file.metadata().end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), count);
  MT_USER_CHECK(count >= 0, ErrorClass::checkpoint,
                cat(file.path().string(), " has no valid metadata entry ", name),
                "start the run anew in an empty folder");
  return count;
}

template <class T>
std::span<const std::byte> bytes_of_values(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

/// Of the values, and of all other metadata. Files of older versions lack kTrainBatches; their
/// digest is that of the values.
std::string digest_of(const std::vector<int64_t>& keys, const std::vector<double>& values,
                      const ReferenceMetadata& metadata) {
  Sha256 out;
  out.update(bytes_of_values(keys));
  out.update(bytes_of_values(values));
  if (!metadata.contains(kTrainBatches)) return out.hex();
  for (const auto& [name, text] : metadata)
    if (name != kDigest && name != "format")
      for (const std::string& part : {name, text})
        out.update(std::as_bytes(std::span(part.c_str(), part.size() + 1)));
  return out.hex();
}

std::string text_of(const SafetensorsFile& file, const char* name) {
  const auto found = file.metadata().find(name);
  return found == file.metadata().end() ? std::string() : found->second;
}

std::string broadcast_text(const std::string& text, Communicator& ranks) {
  std::vector<int32_t> length = {static_cast<int32_t>(text.size())};
  ranks.broadcast(length, 0);
  std::vector<int32_t> letters(text.begin(), text.end());
  letters.resize(static_cast<size_t>(length.front()));
  ranks.broadcast(letters, 0);
  return {letters.begin(), letters.end()};
}

template <class T>
std::vector<T> read_all(const SafetensorsFile& file, const char* name) {
  const TensorInfo& tensor = file.at(name);
  std::vector<T> out(tensor.data.size() / sizeof(T));
  MT_USER_CHECK(out.size() * sizeof(T) == tensor.data.size(), ErrorClass::checkpoint,
                cat(file.path().string(), ": ", name, " has ", tensor.data.size(), " bytes"), "");
  file.read(tensor, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace

int64_t ReferenceLogps::key(std::span<const int32_t> tokens, std::span<const int32_t> targets) {
  Sha256 out;
  out.update(std::as_bytes(tokens));
  out.update(std::as_bytes(targets));
  const auto digest = out.digest();
  int64_t key = 0;
  std::memcpy(&key, digest.data(), sizeof(key));
  return key;
}

const ReferenceLogps::Entry* ReferenceLogps::find(int64_t key) const {
  auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void ReferenceLogps::write(const fs::path& file, const std::string& data) const {
  std::vector<int64_t> keys;
  std::vector<double> values;
  for (const auto& [key, entry] : entries_)
    keys.push_back(key), values.insert(values.end(), {entry.chosen, entry.rejected});
  const auto count = static_cast<int64_t>(keys.size());
  const fs::path temporary = file.string() + cat(".", getpid(), ".tmp");
  std::error_code ignored;
  fs::remove(temporary, ignored);
  ReferenceMetadata metadata = {{"data", data},
                                {kTrain, cat(train_samples)},
                                {kValid, cat(valid_samples)},
                                {kTrainBatches, train_batches},
                                {kValidBatches, valid_batches}};
  metadata[kDigest] = digest_of(keys, values, metadata);
  SafetensorsWriter writer(temporary, "reference",
                           {{kKeys, DType::i64, {count}}, {kValues, DType::f64, {count, 2}}},
                           std::move(metadata));
  for (const TensorSpec& tensor : writer.order())
    writer.write(tensor.name == kKeys ? bytes_of_values(keys) : bytes_of_values(values));
  writer.finish();
  durable_rename(temporary, file, "reference");
}

ReferenceLogps ReferenceLogps::read(const fs::path& path) {
  const char* const help =
      "the reference is the model before its first step: start the run anew in an empty folder, or "
      "restore the file";
  MT_USER_CHECK(fs::exists(path), ErrorClass::checkpoint,
                cat("the run's reference log-probabilities are missing: ", path.string()),
                cat(help,
                    "; a run that began without a reference (objective.reference_free=true, or "
                    "an objective that has none) never had it: set its objective as before"));
  auto open = [&] {
    try {
      return SafetensorsFile(path);
    } catch (const Error& error) {
      throw Error(ErrorClass::checkpoint, error.message(), help);
    }
  };
  const SafetensorsFile file = open();
  const auto keys = read_all<int64_t>(file, kKeys);
  const auto values = read_all<double>(file, kValues);
  const auto digest = file.metadata().find(kDigest);
  MT_USER_CHECK(values.size() == 2 * keys.size() && digest != file.metadata().end() &&
                    digest->second == digest_of(keys, values, file.metadata()),
                ErrorClass::checkpoint,
                cat(path.string(), " is damaged: its content does not match its digest"), help);
  ReferenceLogps out;
  for (size_t i = 0; i < keys.size(); ++i)
    out.add(keys[i], {.chosen = values[2 * i], .rejected = values[2 * i + 1]});
  out.train_samples = count_of(file, kTrain), out.valid_samples = count_of(file, kValid);
  out.train_batches = text_of(file, kTrainBatches);
  out.valid_batches = text_of(file, kValidBatches);
  return out;
}

ReferenceLogps ReferenceLogps::read(const fs::path& path, Communicator& ranks) {
  ReferenceLogps own;
  std::optional<Error> fault;
  try {
    if (ranks.rank() == 0) own = read(path);
  } catch (const Error& error) {
    fault = error;
  }
  std::vector<int64_t> sizes = {fault ? -1 : std::ssize(own.entries_), own.train_samples,
                                own.valid_samples};
  ranks.broadcast(sizes, 0);
  if (fault) throw Error(*fault);
  MT_USER_CHECK(sizes[0] >= 0, ErrorClass::checkpoint,
                "rank 0 cannot read the reference log-probabilities of the run",
                "its message says why");
  std::vector<int64_t> keys;
  std::vector<double> values;
  for (const auto& [key, entry] : own.entries_)
    keys.push_back(key), values.insert(values.end(), {entry.chosen, entry.rejected});
  keys.resize(static_cast<size_t>(sizes[0])), values.resize(2 * keys.size());
  ranks.broadcast(keys, 0);
  ranks.broadcast(values, 0);
  ReferenceLogps out;
  for (size_t i = 0; i < keys.size(); ++i)
    out.add(keys[i], {.chosen = values[2 * i], .rejected = values[2 * i + 1]});
  out.train_samples = sizes[1], out.valid_samples = sizes[2];
  out.train_batches = broadcast_text(own.train_batches, ranks);
  out.valid_batches = broadcast_text(own.valid_batches, ranks);
  return out;
}

}  // namespace mtrain
