// The gpt dataset: prepared token files in the sample order of Megatron's GPTDataset, one file or a
// blend of several.
#include <memory>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/data/indexed_summary.h"
#include "mtrain/data/prepared_data.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

/// Fill-in-the-middle.
struct FimSettings {
  double rate = 0, spm_rate = 0.5, fragment_rate = 0.5;
  std::string cut = "characters", prefix, middle, suffix, pad, fragment, no_prefix;

  void bind(Fields& f) {
    f("rate", rate,
      "fraction of documents that are split into prefix, middle and suffix, with the middle moved "
      "to the end (fill-in-the-middle); 0: none")
        .min(0)
        .max(1)
        .renamed_from({"fim_rate"});
    f("spm_rate", spm_rate,
      "fraction of the split documents in the order suffix, prefix, middle; the others have the "
      "order prefix, suffix, middle")
        .min(0)
        .max(1)
        .renamed_from({"fim_spm_rate"});
    f("cut", cut,
      "where a document is split; characters: between any two characters, the parts are tokenized "
      "again; tokens: between tokens")
        .one_of({"characters", "tokens"});
    f("prefix", prefix, "the special token before the prefix").example("<|fim_prefix|>");
    f("middle", middle, "the special token before the middle").example("<|fim_middle|>");
    f("suffix", suffix, "the special token before the suffix").example("<|fim_suffix|>");
    f("pad", pad,
      "the special token that pads a sample that became shorter; empty: the end-of-document token")
        .example("<|fim_pad|>");
    f("fragment", fragment,
      "a token that divides a document into fragments, each of which is rearranged separately; "
      "empty: none")
        .example("<|file_sep|>")
        .renamed_from({"fim_split_sample"});
    f("fragment_rate", fragment_rate, "fraction of the fragments that are rearranged")
        .min(0)
        .max(1)
        .renamed_from({"fim_fragment_rate"});
    f("no_prefix", no_prefix,
      "documents that begin with this text are not rearranged; empty: no such text")
        .renamed_from({"fim_no_prefix"});
  }
};

struct GptConfig {
  PreparedSettings data;
  FimSettings fim;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false,
       drop_last = true;

  bool needs_eod() const { return reset_position_ids || reset_attention_mask || eod_mask_loss; }

  void bind(Fields& f) {
    data.bind(f);
    f("reset_position_ids", reset_position_ids,
      "restart positions at 0 after each end-of-document token");
    f("reset_attention_mask", reset_attention_mask,
      "restrict attention to the token's own document");
    f("eod_mask_loss", eod_mask_loss,
      "exclude the prediction made at an end-of-document token from the loss");
    f("drop_last", drop_last, "drop the last validation sample if the data does not fill it")
        .resume(ResumeClass::safe)
        .renamed_from({"drop_last_partial_validation_sequence"});
    f.section("fim", fim);
  }
};

class GptDataset final : public Dataset {
 public:
  GptDataset(const GptConfig& config, DatasetContext& context)
      : config_(checked(config, context)),
        context_(context),
        fim_(config.fim.rate > 0 ? make_fim() : nullptr),
        data_(config.data, context,
              {.dataset = "gpt",
               .tokens = context.seq_length,
               .drop_last_valid = config.drop_last,
               .source =
                   [this](auto file, GptIndex index) {
                     return std::make_unique<GptSource>(std::move(file), std::move(index),
                                                        source_config());
                   },
               .check = [this](const IndexedFile& file) { check_ends_marked(file); }}) {}

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    return data_.split(which, num_samples);
  }

  std::string identity() const override { return identity_until(INT64_MAX); }

  std::string identity_until(int64_t consumed) const override {
    auto flag = [](bool value) { return value ? "true" : "false"; };
    return cat("{\"dataset\":\"gpt\",", data_.identity(), ",\"seq_length\":", context_.seq_length,
               ",\"reset_position_ids\":", flag(config_.reset_position_ids),
               ",\"reset_attention_mask\":", flag(config_.reset_attention_mask),
               ",\"eod_mask_loss\":", flag(config_.eod_mask_loss), fim_identity(),
               data_.order_identity(consumed), "}");
  }

 private:
  static GptConfig checked(const GptConfig& config, const DatasetContext& context) {
    MT_USER_CHECK(!config.needs_eod() || (context.tokenizer && context.tokenizer->eod()),
                  ErrorClass::config,
                  "dataset.reset_position_ids, reset_attention_mask and eod_mask_loss need an "
                  "end-of-document token, and "
                  "the tokenizer has none",
                  "choose a tokenizer that has one, or turn them off");
    return config;
  }

  /// Without a token that ends a document, the settings that act at one would be ignored silently.
  void check_ends_marked(const IndexedFile& file) const {
    if (!config_.needs_eod()) return;
    const int32_t eod = *context_.tokenizer->eod();
    const char* setting = config_.reset_attention_mask ? "reset_attention_mask"
                          : config_.reset_position_ids ? "reset_position_ids"
                                                       : "eod_mask_loss";
    MT_USER_CHECK(
        contains_token(file, eod), ErrorClass::data,
        cat("dataset.", setting, "=true acts at the end of each document, and ",
            printable(file.prefix().string()), " has no end of document (id ", eod, ")"),
        cat("prepare the text again with --append-eod, or set dataset.", setting, "=false"));
  }

  GptSourceConfig source_config() const {
    return {.seq_length = context_.seq_length,
            .eod = context_.tokenizer ? context_.tokenizer->eod() : std::nullopt,
            .reset_position_ids = config_.reset_position_ids,
            .reset_attention_mask = config_.reset_attention_mask,
            .eod_mask_loss = config_.eod_mask_loss,
            .vocab_size = context_.tokenizer ? context_.tokenizer->vocab_size() : 0,
            .fim = fim_};
  }

  std::string fim_identity() const {
    const FimSettings& f = config_.fim;
    if (!fim_) return {};
    return cat(",\"fim\":[", shortest(f.rate), ",", shortest(f.spm_rate), ",",
               shortest(f.fragment_rate), ",\"", f.cut, "\",\"",
               sha256(cat(f.prefix, '\n', f.middle, '\n', f.suffix, '\n', f.pad, '\n', f.fragment,
                          '\n', f.no_prefix)),
               "\"]");
  }

  int32_t special_id(const std::string& text, const char* setting) const {
    MT_USER_CHECK(!text.empty(), ErrorClass::config,
                  cat(setting, " is not set, and dataset.fim.rate is"),
                  "name one of the tokenizer's special tokens");
    return special_token_id(*context_.tokenizer, text, setting);
  }

  std::shared_ptr<const FimTransform> make_fim() const {
    const FimSettings& f = config_.fim;
    MT_USER_CHECK(context_.tokenizer, ErrorClass::config, "dataset.fim needs a tokenizer",
                  "set tokenizer.type");
    FimConfig out{.rate = f.rate,
                  .spm_rate = f.spm_rate,
                  .by_token = f.cut == "tokens",
                  .fragment_rate = f.fragment_rate,
                  .no_prefix = f.no_prefix};
    out.prefix = special_id(f.prefix, "dataset.fim.prefix");
    out.middle = special_id(f.middle, "dataset.fim.middle");
    out.suffix = special_id(f.suffix, "dataset.fim.suffix");
    out.eod = context_.tokenizer->eod();
    out.pad = f.pad.empty() && out.eod ? *out.eod : special_id(f.pad, "dataset.fim.pad");
    if (!f.fragment.empty()) out.fragment = special_id(f.fragment, "dataset.fim.fragment");
    return std::make_shared<const FimTransform>(*context_.tokenizer, std::move(out), context_.seed);
  }

  const GptConfig config_;
  const DatasetContext context_;
  const std::shared_ptr<const FimTransform> fim_;
  const PreparedData data_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("gpt", "prepared token files, one or a blend, in Megatron-LM's sample order") {
  using namespace mtrain;
  registry.add<Dataset, GptDataset, GptConfig>(
      "gpt", "prepared token files, one or a blend, in Megatron-LM's sample order");
}
