#include "mtrain/finetune/packed_file.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/data/indexed_writer.h"
#include "mtrain/data/tokenizer_record.h"
#include "mtrain/finetune/record_file.h"
#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {
namespace {

constexpr const char* kFormat = "mtrain packed records";
constexpr int64_t kVersion = 1;
constexpr uint64_t kMostManifestBytes = uint64_t{1} << 20;

fs::path with(fs::path prefix, const char* end) { return prefix += end; }
fs::path manifest_path(const fs::path& prefix) { return packed_record_path(prefix); }
fs::path trained_prefix(const fs::path& prefix) { return with(prefix, ".learnt"); }

std::string again(const fs::path& prefix) {
  return cat("pack the records again: mtrain data pack FILE … --output ",
             shell_word(prefix.string()), " --force");
}

/// Checksums of ids and masks, record by record in the order of the files, and of the ends of
/// packs.
struct Checksums {
  uint32_t ids = 0, trained = 0;
  void add(std::span<const int32_t> some_ids, std::span<const uint8_t> some_trained) {
    ids = crc32c(std::as_bytes(some_ids), ids);
    trained = crc32c(std::as_bytes(some_trained), trained);
  }
  void end_pack(int64_t records) { ids = crc32c(std::as_bytes(std::span(&records, 1)), ids); }
};

int64_t count_trained(std::span<const uint8_t> trained) {
  return std::count(trained.begin() + 1, trained.end(), 1);
}

}  // namespace

bool is_packed(const fs::path& prefix) {
  std::error_code ignored;
  return fs::is_regular_file(manifest_path(prefix), ignored);
}

void write_packed(const fs::path& prefix, const ExampleStore& examples, const Packs& packs,
                  const PackedOrigin& origin, bool overwrite) {
  IndexedWriter ids(prefix, token_dtype(origin.vocab_size),
                    {.overwrite = overwrite});  // also locks out a second writer
  std::error_code ignored;
  if (fs::remove(idx_path(prefix), ignored))
    sync_directory(fs::absolute(prefix).parent_path(), "packed.unlink");
  fs::remove(tokenizer_record_path(prefix), ignored);  // of a pair that these packs replace
  IndexedWriter marks(trained_prefix(prefix), DType::u8, {.overwrite = true});
  Checksums sums;
  std::vector<int32_t> wide;
  int64_t trained_ids = 0;
  for (int64_t p = 0; p < packs.size(); ++p) {
    for (int32_t item : packs[p]) {
      const auto trained = examples.trained(item);
      ids.add_sequence(examples.ids(item));
      marks.add_sequence(wide = {trained.begin(), trained.end()});
      sums.add(examples.ids(item), trained);
      trained_ids += count_trained(trained);
    }
    ids.end_document();
    marks.end_document();
    sums.end_pack(static_cast<int64_t>(packs[p].size()));
  }
  nlohmann::ordered_json manifest = {{"format", kFormat},
                                     {"version", kVersion},
                                     {"tokenizer", origin.tokenizer},
                                     {"encoding", origin.encoding},
                                     {"chat_template", origin.chat_template},
                                     {"seq_length", origin.seq_length},
                                     {"source", fs::absolute(origin.source).string()},
                                     {"source_sha256", origin.source_sha256},
                                     {"packs", ids.num_documents()},
                                     {"records", ids.num_sequences()},
                                     {"tokens", ids.num_tokens()},
                                     {"learnt", trained_ids},
                                     {"ids_crc32c", sums.ids},
                                     {"learnt_crc32c", sums.trained}};
  if (!origin.settings.empty()) manifest["settings"] = origin.settings;
  marks.finish();
  write_file_atomic(
      manifest_path(prefix),
      manifest.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n",
      "packed");
  ids.finish();
}

/// The manifest's members, each with its type.
struct PackedFile::Manifest {
  std::string tokenizer, encoding, source, source_sha256;
  std::string chat_template;                    // empty: none, and in files of older versions
  std::map<std::string, std::string> settings;  // empty in files of older versions
  int64_t seq_length = 0, packs = 0, records = 0, tokens = 0, trained = 0, ids_crc32c = 0,
          trained_crc32c = 0;

  Manifest(const fs::path& path, const std::string& text, const std::string& hint) {
    nlohmann::json json;
    try {
      json = nlohmann::json::parse(text);
    } catch (const nlohmann::json::parse_error& error) {
      throw Error(ErrorClass::data,
                  cat(printable(path.string()), ": is not valid JSON at byte ", error.byte), hint);
    } catch (const nlohmann::json::exception& error) {  // a number beyond all types: 1e400
      throw Error(ErrorClass::data, cat(printable(path.string()), ": ", printable(error.what())),
                  hint);
    }
    auto read = [&](const char* name, auto& value) {
      using Value = std::remove_reference_t<decltype(value)>;
      const bool number = std::is_same_v<Value, int64_t>;
      const auto at = json.is_object() ? json.find(name) : json.end();
      MT_USER_CHECK(at != json.end() && (number ? at->is_number_integer() : at->is_string()),
                    ErrorClass::data,
                    cat(printable(path.string()), ": ", name, " is ",
                        at == json.end() ? "missing" : "of another type", ", wanted ",
                        number ? "a whole number" : "a text"),
                    hint);
      value = at->get<Value>();
    };
    std::string format;
    int64_t version = 0;
    read("format", format);
    read("version", version);
    MT_USER_CHECK(format == kFormat && version == kVersion, ErrorClass::data,
                  cat(printable(path.string()), ": is '", printable(format, 60), "' version ",
                      version, ", wanted '", kFormat, "' version ", kVersion),
                  hint);
    read("tokenizer", tokenizer), read("encoding", encoding), read("source", source),
        read("source_sha256", source_sha256);
    read("seq_length", seq_length), read("packs", packs), read("records", records),
        read("tokens", tokens);
    read("learnt", trained), read("ids_crc32c", ids_crc32c), read("learnt_crc32c", trained_crc32c);
    if (json.contains("chat_template")) read("chat_template", chat_template);
    if (!json.contains("settings")) return;
    try {
      settings = json["settings"].get<std::map<std::string, std::string>>();
    } catch (const nlohmann::json::exception&) {
      throw Error(
          ErrorClass::data,
          cat(printable(path.string()), ": settings is of another type, wanted texts by name"),
          hint);
    }
  }
};

namespace {

/// An encoding, and the name of its chat template, which the encoding has as a digest only.
std::string named_encoding(const std::string& encoding, const std::string& chat_template) {
  return cat(printable(encoding),
             chat_template.empty() ? "" : cat(" (chat template ", printable(chat_template), ")"));
}

/// Checks that the recipe's settings are those of the packs.
void check_settings(const std::string& name, const std::map<std::string, std::string>& packed,
                    const PackedOrigin& wanted, const std::string& remedy) {
  for (const auto& [setting, value] : wanted.settings) {
    const auto was = packed.find(setting);
    const bool known = was != packed.end();
    if (known && was->second == value) continue;
    throw Error(
        ErrorClass::config,
        cat("dataset.", setting, " is ", printable(value), ", and ", name,
            known ? cat(" was packed with ", printable(was->second))
                  : std::string(" does not record what it was packed with")),
        cat("leave dataset.", setting, " out, which accepts the packs unchanged, or ", remedy));
  }
}

/// Packs of segments from before their special tokens were recognized have other ids.
void check_segments(const std::string& name, const std::map<std::string, std::string>& packed,
                    const std::string& remedy) {
  const auto format = packed.find("format"), records = packed.find("records");
  const bool current =
      format == packed.end() || encoded_format(format->second) == format->second ||
      (records != packed.end() && records->second == encoded_format(format->second));
  MT_USER_CHECK(current, ErrorClass::config,
                cat(name,
                    " was packed from segments by an earlier version, which wrote special "
                    "tokens in them as plain text"),
                remedy);
}

/// Returns `prefix` after checking that all of its files exist.
const fs::path& complete(const fs::path& prefix) {
  std::error_code ignored;
  for (const fs::path& path : {idx_path(prefix), bin_path(prefix), idx_path(trained_prefix(prefix)),
                               bin_path(trained_prefix(prefix)), manifest_path(prefix)})
    MT_USER_CHECK(
        fs::exists(path, ignored), ErrorClass::data,
        cat(printable(prefix.string()), " is not complete: ", printable(path.string()),
            " does not exist"),
        cat("packing was interrupted, or only some of its files were copied: ", again(prefix)));
  return prefix;
}

}  // namespace

PackedFile::PackedFile(const fs::path& prefix)
    : prefix_(prefix), ids_(complete(prefix)), trained_(trained_prefix(prefix)) {}

PackedFile::PackedFile(const fs::path& prefix, const PackedOrigin& wanted) : PackedFile(prefix) {
  const Manifest manifest = read_manifest();
  check_origin(manifest, wanted);
  check_packs(manifest, wanted.vocab_size);
}

void PackedFile::verify(const fs::path& prefix, int64_t vocab_size) {
  PackedFile file(prefix);
  file.check_packs(file.read_manifest(),
                   vocab_size > 0 ? vocab_size : std::numeric_limits<int64_t>::max());
}

PackedFile::Manifest PackedFile::read_manifest() {
  const std::string text = read_file(manifest_path(prefix_), kMostManifestBytes);
  digest_ = sha256(text);
  return {manifest_path(prefix_), text, again(prefix_)};
}

void PackedFile::check_origin(const Manifest& manifest, const PackedOrigin& wanted) const {
  const std::string name = printable(prefix_.string());
  MT_USER_CHECK(manifest.tokenizer == wanted.tokenizer, ErrorClass::config,
                cat(name, " was packed with another tokenizer: ", printable(manifest.tokenizer),
                    "; the recipe's is ", printable(wanted.tokenizer)),
                cat("choose that tokenizer, or ", again(prefix_)));
  MT_USER_CHECK(
      manifest.encoding == wanted.encoding, ErrorClass::config,
      cat(name, " was packed with ", named_encoding(manifest.encoding, manifest.chat_template),
          "; the recipe has ", named_encoding(wanted.encoding, wanted.chat_template)),
      cat("set dataset.train_on, chat_template, template_path and date to their previous "
          "values, or ",
          again(prefix_)));
  MT_USER_CHECK(manifest.seq_length == wanted.seq_length, ErrorClass::config,
                cat(name, " was packed for samples of ", manifest.seq_length,
                    " tokens, and model.seq_length is ", wanted.seq_length),
                cat("set model.seq_length=", manifest.seq_length, ", or ", again(prefix_),
                    " --seq-length ", wanted.seq_length));
  check_settings(name, manifest.settings, wanted, again(prefix_));
  check_segments(name, manifest.settings, again(prefix_));
  std::error_code ignored;
  if (fs::is_regular_file(manifest.source, ignored)) {
    const std::string now = record_digest(manifest.source);
    MT_USER_CHECK(
        now == manifest.source_sha256, ErrorClass::data,
        cat(printable(manifest.source), " has changed since ", name,
            " was packed from it: its SHA-256 was ", printable(manifest.source_sha256), " and is ",
            now),
        cat(again(prefix_), "; to train on the existing packs, move the records elsewhere"));
  }
}

TokenizedExample PackedFile::read(int64_t record) const {
  std::vector<int32_t> marks(static_cast<size_t>(ids_.length(record)));
  TokenizedExample out{std::vector<int32_t>(marks.size()), {}};
  ids_.read(record, 0, out.ids);
  trained_.read(record, 0, marks);
  out.trained.assign(marks.begin(), marks.end());
  return out;
}

void PackedFile::check_packs(const Manifest& manifest, int64_t vocab_size) {
  auto check = [&](bool right, const fs::path& path, auto&&... what) {
    if (!right)
      throw Error(ErrorClass::data, cat(printable(path.string()), ": ", what...), again(prefix_));
  };
  const fs::path idx = idx_path(prefix_), bin = bin_path(prefix_),
                 other = idx_path(trained_.prefix());
  check(ids_.num_documents() == manifest.packs && ids_.num_sequences() == manifest.records &&
            ids_.num_tokens() == manifest.tokens,
        idx, "has ", counted(ids_.num_sequences(), "record"), " of ",
        counted(ids_.num_tokens(), "token"), " in ", counted(ids_.num_documents(), "pack"),
        ", wanted ", manifest.records, " of ", manifest.tokens, " in ", manifest.packs);
  check(manifest.packs > 0, idx, "has no packs");
  check(trained_.num_documents() == manifest.packs &&
            trained_.num_sequences() == manifest.records &&
            trained_.num_tokens() == manifest.tokens,
        other, "has ", counted(trained_.num_sequences(), "record"), " of ",
        counted(trained_.num_tokens(), "token"), " in ", counted(trained_.num_documents(), "pack"),
        ", wanted ", manifest.records, " of ", manifest.tokens, " in ", manifest.packs);
  Checksums sums;
  for (int64_t pack = 0; pack < size(); ++pack) {
    int64_t places = 0;
    for (int64_t record = ids_.document_begin(pack); record < ids_.document_begin(pack + 1);
         ++record) {
      const int32_t length = ids_.length(record);
      check(length >= 2, idx, "record ", record, " has ", length, " tokens, wanted at least 2");
      check(length == trained_.length(record), other, "record ", record, " has ",
            trained_.length(record), " tokens, wanted ", length);
      const TokenizedExample example = read(record);
      const auto bad = std::find_if(example.ids.begin(), example.ids.end(),
                                    [&](int32_t id) { return id < 0 || id >= vocab_size; });
      check(bad == example.ids.end(), bin, "record ", record, ", token ", bad - example.ids.begin(),
            ": id ", bad == example.ids.end() ? 0 : *bad, " is outside the vocabulary of ",
            vocab_size);
      sums.add(example.ids, example.trained);
      num_trained_ += count_trained(example.trained);
      places += length - 1;
    }
    check(places > 0 && places <= manifest.seq_length, idx, "pack ", pack, " takes ", places,
          " places of ", manifest.seq_length);
    const int64_t end = ids_.document_begin(pack + 1),
                  other_end = trained_.document_begin(pack + 1);
    check(other_end == end, other, "pack ", pack, " ends before record ", other_end, ", wanted ",
          end);
    sums.end_pack(end - ids_.document_begin(pack));
  }
  check(sums.ids == manifest.ids_crc32c, bin,
        "its ids or the ends of its packs have changed since packing: CRC-32C ", sums.ids,
        ", wanted ", manifest.ids_crc32c);
  check(sums.trained == manifest.trained_crc32c && num_trained_ == manifest.trained,
        bin_path(trained_.prefix()), "its loss mask has changed since packing: CRC-32C ",
        sums.trained, ", wanted ", manifest.trained_crc32c);
}

std::string PackedFile::summary() const {
  return cat(printable(prefix_.string()), " (packed): ", counted(num_records(), "record"), " in ",
             counted(size(), "pack"), ", ", num_trained_, " of ", ids_.num_tokens(),
             " tokens are trained on");
}

void PackedFile::fill(int64_t pack, int32_t pad_id, Sample& out) const {
  MT_CHECK(pack >= 0 && pack < size(), "pack ", pack, " of ", size());
  out.starts.clear();
  size_t at = 0;
  for (int64_t record = ids_.document_begin(pack); record < ids_.document_begin(pack + 1);
       ++record) {
    const TokenizedExample example = read(record);
    at = write_example(example.ids, example.trained, at, out);
  }
  write_padding(at, pad_id, out);
}

PackedFileSource::PackedFileSource(std::shared_ptr<const PackedFile> file,
                                   std::vector<int32_t> packs, SampleOrder order, int32_t pad_id)
    : file_(std::move(file)),
      packs_(std::move(packs)),
      order_(order),
      pad_id_(pad_id),
      size_(order.size(static_cast<int64_t>(packs_.size()))) {}

void PackedFileSource::get(int64_t index, Sample& out) const {
  MT_CHECK(index >= 0 && index < size_, "sample ", index, " of ", size_);
  file_->fill(packs_[static_cast<size_t>(order_.item(index, static_cast<int64_t>(packs_.size())))],
              pad_id_, out);
}

}  // namespace mtrain::finetune
