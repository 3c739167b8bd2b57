#include "mtrain/train/teacher_store.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"

namespace mtrain {
namespace {

constexpr const char *kVersion = "1", *kExtension = ".safetensors", *kTopK = "objective.top_k",
                     *kStore = "objective.store";

template <class T>
std::span<const std::byte> raw_bytes(const std::vector<T>& values, size_t begin = 0,
                                     size_t end = SIZE_MAX) {
  return std::as_bytes(std::span(values).subspan(begin, std::min(end, values.size()) - begin));
}

/// Of the index, which is read as a whole.
std::string index_digest(const std::vector<int64_t>& keys, const std::vector<int64_t>& ends,
                         const std::vector<int64_t>& crc) {
  Sha256 out;
  for (const auto* one : {&keys, &ends, &crc}) out.update(raw_bytes(*one));
  return out.hex();
}

uint32_t sample_crc(std::span<const int32_t> ids, std::span<const f16> logps,
                    std::span<const float> rest) {
  return crc32c(std::as_bytes(rest), crc32c(std::as_bytes(logps), crc32c(std::as_bytes(ids))));
}

std::map<std::string, std::string> metadata_of(const TeacherIdentity& of, std::string digest) {
  return {{"kind", "teacher"},
          {"version", kVersion},
          {"teacher", of.teacher},
          {"tokenizer", of.tokenizer},
          {"top_k", cat(of.k)},
          {"temperature", shortest(of.temperature)},
          {"vocabulary", cat(of.vocabulary)},
          {"seq_length", cat(of.seq_length)},
          {"sha256", std::move(digest)}};
}

Error damaged(const fs::path& path, const std::string& how) {
  return {ErrorClass::data, cat(kStore, ": ", printable(path.string()), " is damaged: ", how),
          "delete this file: its samples are computed again when the run starts"};
}

std::string entry(const SafetensorsFile& file, const char* name) {
  const auto found = file.metadata().find(name);
  if (found == file.metadata().end()) throw damaged(file.path(), cat("it has no entry ", name));
  return found->second;
}

template <class T>
std::vector<T> read_index(const SafetensorsFile& file, const char* name) {
  const TensorInfo& tensor = file.at(name);
  if (tensor.dtype != DTypeOf<T>::value || tensor.shape.rank() != 1)
    throw damaged(file.path(), cat(name, " is ", tensor.file_dtype, " ", cat(tensor.shape)));
  std::vector<T> out(tensor.data.size() / sizeof(T));
  file.read(tensor, std::as_writable_bytes(std::span(out)));
  return out;
}

/// Items [begin, end) of a tensor.
template <class T>
std::vector<T> read_items(const SafetensorsFile& file, const char* name, uint64_t begin,
                          uint64_t end) {
  std::vector<T> out(end - begin);
  file.read(file.at(name), begin * sizeof(T), std::as_writable_bytes(std::span(out)));
  return out;
}

/// Why the ids and values of one token are no distribution; empty: they are one. The values then
/// become a distribution, whose sum rounding to fp16 has changed.
std::string to_distribution(TopKRows& rows, int64_t token, int64_t vocabulary) {
  const auto k = static_cast<size_t>(rows.k), at = static_cast<size_t>(token) * k;
  const bool has_rest = rows.k < vocabulary;
  float& rest = rows.log_rest[static_cast<size_t>(token)];
  double total = has_rest ? std::exp(static_cast<double>(rest)) : 0;
  int64_t before = -1;
  for (size_t j = at; j < at + k; ++j) {
    if (rows.ids[j] <= before || rows.ids[j] >= vocabulary)
      return cat("id ", rows.ids[j], " after ", before, " of ", counted(vocabulary, "id"));
    before = rows.ids[j];
    total += std::exp(static_cast<double>(rows.log_probabilities[j]));
  }
  if (!(total > 0.9 && total < 1.1)) return cat("probabilities whose sum is ", total);
  const auto shift = static_cast<float>(std::log(total));
  for (size_t j = at; j < at + k; ++j) rows.log_probabilities[j] -= shift;
  rest -= shift;
  return {};
}

int64_t num_targets_of(const MicroBatch& batch, int64_t row) {
  const auto begin = batch.targets.begin() + row * batch.seq_length;
  return std::count_if(begin, begin + batch.seq_length, [](int32_t t) { return t >= 0; });
}

}  // namespace

int64_t TeacherStore::key(const MicroBatch& batch, int64_t row) {
  Sha256 out;
  const auto length = static_cast<size_t>(batch.seq_length);
  for (const auto* one : {&batch.tokens, &batch.targets, &batch.positions})
    out.update(
        raw_bytes(*one, static_cast<size_t>(row) * length, static_cast<size_t>(row + 1) * length));
  const auto digest = out.digest();
  int64_t key = 0;
  std::memcpy(&key, digest.data(), sizeof(key));
  return key;
}

TeacherStore::TeacherStore(fs::path folder, const TeacherIdentity& wanted)
    : folder_(std::move(folder)), identity_(wanted) {
  std::error_code none;
  if (!fs::exists(folder_, none)) return;
  MT_USER_CHECK(fs::is_directory(folder_, none), ErrorClass::config,
                cat(kStore, ": ", printable(folder_.string()), " is not a folder"),
                "give a folder, which may be new");
  std::vector<fs::path> paths;
  for (const auto& one : fs::directory_iterator(folder_))
    if (one.path().extension() == kExtension) paths.push_back(one.path());
  std::ranges::sort(paths);
  files_.reserve(paths.size());
  for (const fs::path& path : paths) open(path);
}

void TeacherStore::open(const fs::path& path) {
  auto opened = [&] {
    try {
      return SafetensorsFile(path);
    } catch (const Error& error) {
      throw damaged(path, error.message());
    }
  };
  SafetensorsFile file = opened();
  require_same(file);
  const auto keys = read_index<int64_t>(file, "keys");
  File made{.file = std::move(file), .ends = {}, .crc = {}};
  made.ends = read_index<int64_t>(made.file, "ends");
  made.crc = read_index<int64_t>(made.file, "crc32c");
  if (entry(made.file, "sha256") != index_digest(keys, made.ends, made.crc))
    throw damaged(path, "its index does not match its digest");
  const int64_t tokens = made.ends.empty() ? 0 : made.ends.back();
  const auto items = static_cast<uint64_t>(tokens * identity_.k);
  if (keys.size() != made.ends.size() || keys.size() != made.crc.size() ||
      !std::ranges::is_sorted(made.ends) || tokens < 0 ||
      made.file.at("ids").data.size() != items * sizeof(int32_t) ||
      made.file.at("logps").data.size() != items * sizeof(f16) ||
      made.file.at("rest").data.size() != static_cast<uint64_t>(tokens) * sizeof(float))
    throw damaged(path, cat("its tensors do not fit ", counted(tokens, "token")));
  for (size_t i = 0; i < keys.size(); ++i)
    places_.emplace(keys[i], Place{static_cast<uint32_t>(files_.size()), static_cast<uint32_t>(i)});
  files_.push_back(std::move(made));
}

void TeacherStore::require_same(const SafetensorsFile& file) {
  const std::string where = printable(file.path().string());
  auto found = file.metadata().find("kind");
  MT_USER_CHECK(found != file.metadata().end() && found->second == "teacher", ErrorClass::config,
                cat(kStore, ": ", where, " does not hold a teacher's distributions"),
                "give a folder of its own");
  MT_USER_CHECK(entry(file, "version") == kVersion, ErrorClass::config,
                cat(kStore, ": ", where, " has version ", printable(entry(file, "version")),
                    ", and this mtrain reads version ", kVersion),
                "update mtrain, or choose another folder");
  const auto want = metadata_of(identity_, {});
  const auto same = [&](const char* name, const std::string& what, const std::string& remedy) {
    const std::string there = entry(file, name);
    MT_USER_CHECK(there == want.at(name), ErrorClass::config,
                  cat(kStore, ": ", where, " was computed with ", what, ": there ",
                      printable(there), ", now ", want.at(name)),
                  cat(remedy, "; or choose another folder: ", kStore, "=DIR"));
  };
  same("top_k", cat("another ", kTopK), cat("set ", kTopK, "=", printable(entry(file, "top_k"))));
  same("temperature", "another objective.temperature, at which the log-probabilities are stored",
       cat("set objective.temperature=", printable(entry(file, "temperature"))));
  same("tokenizer", "another tokenizer", "set the tokenizer section to the one of then");
  same("seq_length", "another model.seq_length",
       cat("set model.seq_length=", printable(entry(file, "seq_length"))));
  if (!identity_.teacher.empty())
    same("teacher", "a teacher of other weights", "restore the weights of objective.teacher");
  if (identity_.vocabulary > 0)
    same("vocabulary", "another number of ids that student and teacher have",
         "set model.vocab_size to that of then");
  identity_.teacher = entry(file, "teacher");
  const std::string ids = entry(file, "vocabulary");
  std::from_chars(ids.data(), ids.data() + ids.size(), identity_.vocabulary);
  if (identity_.vocabulary < identity_.k)
    throw damaged(file.path(), cat("it says vocabulary ", printable(ids)));
}

TopKRows TeacherStore::read(const Place& place) const {
  const File& from = files_[place.file];
  const auto k = static_cast<uint64_t>(identity_.k);
  const auto begin = static_cast<uint64_t>(place.sample > 0 ? from.ends[place.sample - 1] : 0),
             end = static_cast<uint64_t>(from.ends[place.sample]);
  TopKRows out(identity_.k, static_cast<int64_t>(end - begin));
  out.ids = read_items<int32_t>(from.file, "ids", begin * k, end * k);
  const auto logps = read_items<f16>(from.file, "logps", begin * k, end * k);
  out.log_rest = read_items<float>(from.file, "rest", begin, end);
  if (sample_crc(out.ids, logps, out.log_rest) != from.crc[place.sample])
    throw damaged(from.file.path(), "the bytes of a sample do not match their checksum");
  for (size_t i = 0; i < logps.size(); ++i) out.log_probabilities[i] = to_float(logps[i]);
  for (int64_t token = 0; token < out.tokens(); ++token)
    if (const std::string fault = to_distribution(out, token, identity_.vocabulary); !fault.empty())
      throw damaged(from.file.path(), cat("a token has ", fault));
  return out;
}

TopKRows TeacherStore::read(const MicroBatch& batch) const {
  TopKRows out(identity_.k, batch.rows * batch.seq_length);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto found = places_.find(key(batch, row));
    MT_USER_CHECK(found != places_.end(), ErrorClass::data,
                  cat(kStore, ": ", printable(folder_.string()),
                      " has no distributions for sample ", batch.first_sample + row),
                  "the data have changed since the run has started: start it again");
    const TopKRows mine = read(found->second);
    if (mine.tokens() != num_targets_of(batch, row))
      throw damaged(
          files_[found->second.file].file.path(),
          cat("sample ", batch.first_sample + row, " has ", counted(mine.tokens(), "token"),
              " in place of ", num_targets_of(batch, row)));
    int64_t next = 0;
    for (int64_t t = row * batch.seq_length; t < (row + 1) * batch.seq_length; ++t)
      if (batch.targets[static_cast<size_t>(t)] >= 0) out.set(t, mine, next++);
  }
  return out;
}

TeacherStoreWriter::TeacherStoreWriter(fs::path folder, TeacherIdentity identity, std::string name)
    : folder_(std::move(folder)), identity_(std::move(identity)), name_(std::move(name)) {}

void TeacherStoreWriter::add(const MicroBatch& batch, int64_t row, const TopKRows& rows) {
  const size_t ids = ids_.size(), tokens = rest_.size();
  const auto k = static_cast<size_t>(identity_.k);
  for (int64_t t = row * batch.seq_length; t < (row + 1) * batch.seq_length; ++t) {
    const auto token = static_cast<size_t>(t);
    if (batch.targets[token] < 0) continue;
    for (size_t j = token * k; j < (token + 1) * k; ++j)
      ids_.push_back(rows.ids[j]), logps_.push_back(f16(rows.log_probabilities[j]));
    rest_.push_back(rows.log_rest[token]);
  }
  keys_.push_back(TeacherStore::key(batch, row));
  ends_.push_back(static_cast<int64_t>(rest_.size()));
  crc_.push_back(sample_crc(std::span(ids_).subspan(ids), std::span(logps_).subspan(ids),
                            std::span(rest_).subspan(tokens)));
}

void TeacherStoreWriter::flush() {
  if (keys_.empty()) return;
  const auto samples = static_cast<int64_t>(keys_.size()),
             tokens = static_cast<int64_t>(rest_.size());
  const fs::path file = folder_ / cat(name_, "-", number_++, kExtension),
                 temporary = file.string() + TeacherStore::kUnfinished;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  SafetensorsWriter writer(temporary, "teacher",
                           {{"keys", DType::i64, {samples}},
                            {"ends", DType::i64, {samples}},
                            {"crc32c", DType::i64, {samples}},
                            {"ids", DType::i32, {tokens, identity_.k}},
                            {"logps", DType::f16, {tokens, identity_.k}},
                            {"rest", DType::f32, {tokens}}},
                           metadata_of(identity_, index_digest(keys_, ends_, crc_)));
  const std::map<std::string, std::span<const std::byte>> parts = {
      {"keys", raw_bytes(keys_)}, {"ends", raw_bytes(ends_)},   {"crc32c", raw_bytes(crc_)},
      {"ids", raw_bytes(ids_)},   {"logps", raw_bytes(logps_)}, {"rest", raw_bytes(rest_)}};
  for (const TensorSpec& tensor : writer.order()) writer.write(parts.at(tensor.name));
  writer.finish();
  durable_rename(temporary, file, "teacher");
  keys_.clear(), ends_.clear(), crc_.clear(), ids_.clear(), logps_.clear(), rest_.clear();
}

}  // namespace mtrain
