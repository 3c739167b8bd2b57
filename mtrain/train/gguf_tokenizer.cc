#include "mtrain/train/gguf_tokenizer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

using Json = nlohmann::json;

// Numbers of the kinds of tokens.
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;
constexpr std::string_view kFile = "tokenizer.json";
constexpr float kNoScore = -1000.0f;
constexpr const char* kMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

[[noreturn]] void refuse_tokenizer(const fs::path& file, const std::string& what) {
  throw Error(ErrorClass::config, cat(printable(file.string()), ": ", what), kExportFolderInstead);
}

/// The regular expressions by which llama.cpp splits text, in the words of tokenizer.json, and its
/// names for them.
std::optional<std::string> split_name(const std::string& regex) {
  static const std::map<std::string, std::string> names = {
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       "llama-bpe"},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       "qwen2"}};
  const auto found = names.find(regex);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

/// An object and, if it is a sequence, the objects that it is made of.
std::vector<Json> steps_of(const Json& parent, const char* key, const char* parts) {
  if (!parent.contains(key) || !parent.at(key).is_object()) return {};
  const Json& object = parent.at(key);
  if (object.value("type", "") != "Sequence") return {object};
  return object.at(parts).get<std::vector<Json>>();
}

class Tokenizer2Gguf {
 public:
  Tokenizer2Gguf(const fs::path& path, const std::string& config, int64_t rows, bool is_gemma,
                 GgufHeader& header)
      : file_(fs::is_directory(path) ? path / kFile : path),
        config_(Json::parse(config)),
        rows_(static_cast<size_t>(rows)),
        is_gemma_(is_gemma),
        header_(header) {}

  /// `chat_template`: empty: the one next to the tokenizer, if any.
  void add(const std::string& chat_template) {
    std::error_code error;
    if (!fs::is_regular_file(file_, error))
      refuse_tokenizer(file_, "no such file, and a GGUF file needs it");
    json_ = Json::parse(read_file(file_), nullptr, false);
    const Json& model = json_.is_object() && json_.contains("model") ? json_["model"] : Json();
    if (!model.is_object() || model.value("type", "BPE") != "BPE" || !model.contains("vocab") ||
        !model.contains("merges"))
      refuse_tokenizer(
          file_, "a GGUF file has byte-level BPE or SentencePiece's BPE, and this is neither");
    const fs::path settings = companion("tokenizer_config.json");
    if (fs::is_regular_file(settings, error))
      settings_ = Json::parse(read_file(settings), nullptr, false);
    if (!settings_.is_object()) settings_ = Json::object();
    read_merges(model.at("merges"));
    const bool sentencepiece = model.value("byte_fallback", false);
    header_.text("tokenizer.ggml.model", sentencepiece ? "llama" : "gpt2");
    header_.text("tokenizer.ggml.pre", sentencepiece ? "default" : splitting());
    read_vocabulary(model.at("vocab"), sentencepiece);
    if (sentencepiece) add_sentencepiece(model);
    read_added_tokens(model, sentencepiece);
    header_.texts("tokenizer.ggml.tokens", tokens_);
    if (sentencepiece) header_.reals("tokenizer.ggml.scores", scores_);
    header_.numbers("tokenizer.ggml.token_type", kinds_);
    if (!sentencepiece) add_merges();
    add_special(chat_template);
  }

 private:
  /// A file that belongs to the tokenizer by its name: x.chat_template.jinja to x.tokenizer.json.
  fs::path companion(const std::string& name) const {
    const std::string file = file_.filename().string();
    if (!file.ends_with(kFile)) return {};
    return file_.parent_path() / (file.substr(0, file.size() - kFile.size()) + name);
  }
  void read_merges(const Json& merges) {
    for (const Json& merge : merges) {
      if (merge.is_array() && merge.size() == 2) {
        merges_.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      const std::string text = merge.is_string() ? merge.get<std::string>() : "";
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        refuse_tokenizer(file_,
                         cat("the merge ", printable(merge.dump(), 60), " is not two tokens"));
      merges_.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
  }

  /// How llama.cpp splits text before it merges bytes.
  std::string splitting() const {
    std::string regex, name;
    for (const Json& step : steps_of(json_, "pre_tokenizer", "pretokenizers")) {
      const std::string type = step.value("type", "");
      if (type == "Split" && regex.empty() && step.value("behavior", "") == "Isolated" &&
          !step.value("invert", false) && step.at("pattern").contains("Regex"))
        regex = step.at("pattern").at("Regex").get<std::string>();
      else if (type == "ByteLevel" && !step.value("add_prefix_space", false))
        name = step.value("use_regex", true) ? regex.empty() ? "gpt-2" : ""
                                             : split_name(regex).value_or("");
      else
        refuse_tokenizer(
            file_, cat("llama.cpp has no equivalent of the pre-tokenizer ", printable(type, 40)));
    }
    if (name.empty())
      refuse_tokenizer(
          file_, cat("llama.cpp has no name for this way to split text: ", printable(regex, 300)));
    return name;
  }

  void read_vocabulary(const Json& vocabulary, bool sentencepiece) {
    tokens_.resize(rows_);
    kinds_.assign(rows_, kUnused);
    scores_.assign(rows_, sentencepiece ? kNoScore : 0);
    for (size_t i = 0; i < rows_; ++i) tokens_[i] = cat("[PAD", i, "]");
    for (const auto& [token, id] : vocabulary.items()) place(id, token, kNormal);
  }

  size_t place(const Json& id, const std::string& token, int32_t kind) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= rows_)
      refuse_tokenizer(file_,
                       cat("token ", printable(token, 40), " has the id ", printable(id.dump(), 40),
                           ", and the model has ", rows_, " rows"));
    const size_t at = id.get<size_t>();
    tokens_[at] = token;
    kinds_[at] = kind;
    return at;
  }

  /// SentencePiece merges the pair whose token has the highest score. Its trainer gives 0, -1, -2 …
  /// to tokens in the order in which they are made, then to single characters.
  void add_sentencepiece(const Json& model) {
    std::map<std::string, size_t> ids;
    for (size_t i = 0; i < rows_; ++i)
      if (kinds_[i] == kNormal) ids[tokens_[i]] = i;
    const std::string unknown =
        model.contains("unk_token") && model["unk_token"].is_string() ? model["unk_token"] : "";
    std::vector<bool> scored(rows_);
    float score = 0;
    for (const auto& [left, right] : merges_) {
      const auto made = ids.find(left + right);
      if (made == ids.end())
        refuse_tokenizer(file_, cat("the merge of ", printable(left, 40), " and ",
                                    printable(right, 40), " makes no token"));
      if (scored[made->second]) continue;
      scored[made->second] = true;
      scores_[made->second] = score--;
    }
    for (size_t i = 0; i < rows_; ++i) {
      const std::string& token = tokens_[i];
      if (kinds_[i] != kNormal || scored[i]) continue;
      const bool byte = token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
      if (byte || token == unknown) {
        kinds_[i] = byte ? kByte : kUnknown;
        scores_[i] = 0;
      } else {
        scores_[i] = score--;
      }
    }
    header_.flag("tokenizer.ggml.add_space_prefix", !is_gemma_ && adds_space());
  }

  /// Whether a space is put before the text.
  bool adds_space() const {
    for (const Json& step : steps_of(json_, "normalizer", "normalizers"))
      if (step.value("type", "") == "Prepend") return true;
    for (const Json& step : steps_of(json_, "pre_tokenizer", "pretokenizers"))
      if (step.value("type", "") == "Metaspace")
        return step.value("prepend_scheme", "always") != "never" &&
               step.value("add_prefix_space", true);
    return false;
  }

  void read_added_tokens(const Json& model, bool sentencepiece) {
    const std::string unknown =
        model.contains("unk_token") && model["unk_token"].is_string() ? model["unk_token"] : "";
    for (const Json& added : json_.value("added_tokens", Json::array())) {
      const std::string token = added.at("content").get<std::string>();
      const bool special = added.value("special", false) || looks_special(token);
      const size_t at = place(added.at("id"), special ? token : replace_all(token, kMark, " "),
                              special ? kControl : kUserDefined);
      if (sentencepiece && token == unknown) kinds_[at] = kUnknown;
      if (sentencepiece) scores_[at] = kNoScore;
      added_[token] = static_cast<uint32_t>(at);
    }
  }

  /// Tokens that some folders do not mark as special although they are.
  static bool looks_special(const std::string& token) {
    return token == "<pad>" || token == "<mask>" || token == "<2mass>" || token == "[@BOS@]" ||
           (token.starts_with("<|") && token.ends_with("|>")) ||
           (token.starts_with("<unused") && token.ends_with(">"));
  }

  void add_merges() {
    std::vector<std::string> lines;
    for (const auto& [left, right] : merges_)  // a space would separate two tokens
      lines.push_back(
          cat(replace_all(left, " ", "\xC4\xA0"), ' ', replace_all(right, " ", "\xC4\xA0")));
    header_.texts("tokenizer.ggml.merges", lines);
  }

  /// The id of a special token, from tokenizer_config.json or config.json.
  std::optional<uint32_t> special_id(const std::string& kind) const {
    const auto entry = settings_.find(kind + "_token");
    if (entry != settings_.end()) {
      const std::string token = entry->is_string()   ? entry->get<std::string>()
                                : entry->is_object() ? entry->value("content", "")
                                                     : "";
      if (const auto found = added_.find(token); found != added_.end()) return found->second;
    }
    const auto id = config_.find(kind + "_token_id");
    if (id != config_.end() && id->is_number_unsigned() && id->get<uint64_t>() < rows_)
      return id->get<uint32_t>();
    return std::nullopt;
  }

  /// Whether the tokenizer puts this token at the start or end of a text.
  std::optional<bool> adds(const std::string& kind) const {
    const std::string key = cat("add_", kind, "_token");
    if (settings_.contains(key) && settings_[key].is_boolean()) return settings_[key].get<bool>();
    const std::optional<uint32_t> id = special_id(kind);
    for (const Json& step : steps_of(json_, "post_processor", "processors")) {
      if (step.value("type", "") != "TemplateProcessing") continue;
      const Json& single = step.at("single");
      if (single.size() < 2) continue;
      const Json& end = kind == "bos" ? single.front() : single.back();
      if (!end.contains("SpecialToken")) continue;
      const auto token = added_.find(end["SpecialToken"].value("id", ""));
      return id && token != added_.end() && token->second == *id;
    }
    return std::nullopt;
  }

  void add_special(const std::string& own) {
    const std::pair<const char*, const char*> kinds[] = {
        {"bos", "bos"},     {"eos", "eos"}, {"unk", "unknown"}, {"sep", "seperator"},
        {"pad", "padding"}, {"cls", "cls"}, {"mask", "mask"}};
    for (const auto& [kind, name] : kinds)
      if (const auto id = special_id(kind))
        header_.number(cat("tokenizer.ggml.", name, "_token_id"), *id);
    for (const char* kind : {"bos", "eos"})
      if (const auto add = adds(kind))
        header_.flag(cat("tokenizer.ggml.add_", kind, "_token"), *add);
    if (const std::string text = own.empty() ? chat_template() : own; !text.empty())
      header_.text("tokenizer.chat_template", text);
  }

  std::string chat_template() const {
    const auto entry = settings_.find("chat_template");
    if (entry != settings_.end() && entry->is_string()) return entry->get<std::string>();
    if (entry != settings_.end() && entry->is_array())
      for (const Json& one : *entry)
        if (one.is_object() && one.value("name", "") == "default") return one.value("template", "");
    std::error_code error;
    const fs::path file = companion("chat_template.jinja");
    return fs::is_regular_file(file, error) ? read_file(file) : std::string();
  }

  const fs::path file_;
  const Json config_;
  const size_t rows_;
  const bool is_gemma_;
  GgufHeader& header_;
  Json json_, settings_;
  std::vector<std::pair<std::string, std::string>> merges_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> kinds_;
  std::vector<float> scores_;
  std::map<std::string, uint32_t> added_;
};

}  // namespace

void add_gguf_tokenizer(const fs::path& path, const std::string& config, int64_t rows,
                        bool is_gemma, const std::string& chat_template, GgufHeader& header) {
  try {
    Tokenizer2Gguf(path, config, rows, is_gemma, header).add(chat_template);
  } catch (const Json::exception& fault) {
    refuse_tokenizer(path, cat("not understood: ", fault.what()));
  }
}

}  // namespace mtrain
