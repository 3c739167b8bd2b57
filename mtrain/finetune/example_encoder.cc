#include "mtrain/finetune/example_encoder.h"

#include <algorithm>
#include <atomic>
#include <iomanip>
#include <sstream>
#include <thread>

#include "mtrain/base/file.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/chat/omissions.h"
#include "mtrain/chat/ready_made.h"
#include "mtrain/finetune/chat_tokens.h"
#include "mtrain/finetune/dialogue.h"

namespace mtrain::finetune {
namespace {

bool has_template_file(const fs::path& folder) {
  std::error_code ignored;
  if (folder.empty()) return false;
  if (fs::exists(folder / "chat_template.jinja", ignored)) return true;
  if (!fs::exists(folder / "tokenizer_config.json", ignored)) return false;
  return read_file(folder / "tokenizer_config.json").find("\"chat_template\"") != std::string::npos;
}

}  // namespace

std::tm parse_date(const std::string& text, const std::string& setting) {
  std::tm out{};
  std::istringstream in(text);
  in >> std::get_time(&out, "%Y-%m-%d");
  out.tm_isdst = 0;
  std::tm normal = out;
  const bool real = !in.fail() && in.peek() == std::istringstream::traits_type::eof() &&
                    ::timegm(&normal) != -1 && normal.tm_mday == out.tm_mday &&
                    normal.tm_mon == out.tm_mon;
  MT_USER_CHECK(real, ErrorClass::config,
                cat(setting, ": '", printable(text, 40), "' is not a date"),
                "write it as 2024-07-26");
  return normal;  // with its day of the week
}

ExampleEncoder::ExampleEncoder(const Tokenizer& tokenizer, const EncoderOptions& options)
    : tokenizer_(tokenizer), options_(options), date_(parse_date(options.date, "dataset.date")) {
  if (!options.chat_template.empty()) {
    MT_USER_CHECK(options.template_path.empty(), ErrorClass::config,
                  "dataset.chat_template and dataset.template_path are both set",
                  "chat_template names a template that comes with mtrain, template_path your own "
                  "file: leave one out, e.g. with dataset.chat_template=''");
    file_ = chat::ready_made(options.chat_template);
  } else {
    fs::path path = options.template_path.empty() ? tokenizer.folder()
                                                  : options.base_directory / options.template_path;
    if (options.template_path.empty() && !has_template_file(path)) return;
    file_ = chat::read_template(path, options.template_name);
    MT_USER_CHECK(file_.has_names || options.template_name == EncoderOptions{}.template_name,
                  ErrorClass::config,
                  cat("dataset.template_name is '", printable(options.template_name, 60), "', and ",
                      printable(file_.name), " has a single template"),
                  "leave dataset.template_name out");
  }
  add_special_names(tokenizer, file_.special);
  for (const auto& token : tokenizer.special_tokens()) special_tokens_.push_back(token.text);
  template_ = std::make_unique<const chat::ChatTemplate>(file_.source, file_.name);
}

AskedPrompt ExampleEncoder::ask(const std::string& text) const {
  return Dialogue(tokenizer_, file_, date_).ask(text);
}

std::string ExampleEncoder::identity() const {
  static constexpr const char* kNames[] = {"assistant", "last", "all"};
  std::string special;
  for (const auto& [name, text] : file_.special) special += cat(name, '=', text, '\n');
  return cat("template ", template_ ? sha256(cat(file_.source, '\n', special)) : "none", ", date ",
             options_.date, ", train_on ", kNames[static_cast<size_t>(options_.train_on)],
             options_.parse_special ? ", special tokens in texts" : "");
}

std::string ExampleEncoder::spelled_special(const Example& example) const {
  if (example.kind != Example::Kind::prompted || options_.parse_special) return {};
  for (const SpecialToken& token : tokenizer_.special_tokens())
    for (const Segment& segment : example.texts)
      if (!token.text.empty() && segment.text.find(token.text) != std::string::npos)
        return token.text;
  return {};
}

std::vector<std::string> ExampleEncoder::missing_special_tokens() const {
  if (!template_) return {};
  chat::ChatInput input;
  input.messages = chat::messages_from_json(
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])");
  input.special = file_.special;
  input.now = date_;
  std::vector<std::string> out;
  try {
    for (std::string& mark : chat::special_marks(template_->render(input).text)) {
      const bool known =
          std::find(special_tokens_.begin(), special_tokens_.end(), mark) != special_tokens_.end();
      const bool plain = std::find(file_.text_marks.begin(), file_.text_marks.end(), mark) !=
                         file_.text_marks.end();
      if (!known && !plain && tokenizer_.encode(mark).size() != 1) out.push_back(std::move(mark));
    }
  } catch (const Error&) {  // the template refuses this conversation; faults are reported for the
                            // records
  }
  return out;
}

/// Marks the bytes to train on: all, or the assistant's stretches, without the words of messages
/// that are excluded.
void ExampleEncoder::mark_trained(const chat::RenderedChat& chat, const Example& example,
                                  std::vector<uint8_t>& trained) const {
  const bool all = options_.train_on == TrainOn::all;
  trained.assign(chat.text.bytes.size() + 1, all ? 1 : 0);
  auto message_of = [&](size_t byte) -> size_t {
    const chat::Origin origin = chat.text.origins[byte];
    return origin == chat::kTemplate || origin == chat::kOtherInput ||
                   origin > example.trains.size()
               ? SIZE_MAX
               : origin - 1u;
  };
  auto counts = [&](size_t message) {
    return message == SIZE_MAX || (all ? !example.excluded[message] : example.trains[message]) ? 1
                                                                                               : 0;
  };
  for (size_t b = 0; all && b < chat.text.bytes.size(); ++b) trained[b] = counts(message_of(b));
  for (const auto& stretch : chat.assistant) {
    size_t speaker = SIZE_MAX;
    for (size_t b = stretch.begin; b < stretch.end && speaker == SIZE_MAX; ++b)
      speaker = message_of(b);
    for (size_t b = stretch.begin; b < stretch.end; ++b) {
      if (size_t own = message_of(b); own != SIZE_MAX) speaker = own;
      trained[b] = counts(speaker);
    }
  }
  if (options_.train_on == TrainOn::last && !chat.assistant.empty())
    std::fill(trained.begin(),
              trained.begin() + static_cast<std::ptrdiff_t>(chat.assistant.back().begin),
              uint8_t{0});
}

TokenizedExample ExampleEncoder::chat(const Example& example) const {
  MT_USER_CHECK(template_, ErrorClass::config,
                cat(example.place, ": is a conversation, but there is no chat template"),
                cat("set dataset.chat_template to one that comes with mtrain (",
                    join(chat::ready_made_names(), ", "),
                    "), or dataset.template_path: a file of Jinja, a tokenizer_config.json, or a "
                    "model's folder with either"));
  chat::ChatInput input;
  input.messages = chat::messages_from_json(example.messages);
  if (!example.tools.empty()) input.tools = chat::from_json(example.tools);
  input.special = file_.special;
  input.special_tokens = special_tokens_;
  input.now = date_;
  chat::require_fields_read(file_, input);
  const chat::RenderedChat rendered = template_->render_masked(input);
  chat::require_tools_written(file_, input, rendered.text);
  chat::require_messages_written(file_, input, rendered.text);
  std::vector<uint8_t> trained;
  mark_trained(rendered, example, trained);
  ChatTokens tokens = encode_chat(rendered.text, tokenizer_);
  TokenizedExample out{std::move(tokens.ids), {}};
  out.trained.reserve(out.ids.size());
  // As is_within(), by the flags of all bytes.
  for (const chat::Stretch& token : tokens.bytes) {
    const size_t begin = std::min(token.begin, trained.size() - 1),
                 end = std::clamp(token.end, begin + 1, trained.size());
    const auto* flags = trained.data();
    out.trained.push_back(std::find(flags + begin, flags + end, uint8_t{1}) != flags + end);
  }
  return out;
}

/// Encodes one text, as generation will see it. A token that contains a part of the answer belongs
/// to the answer, as in TRL.
TokenizedExample ExampleEncoder::prompted(const Example& example) const {
  std::string text;
  std::vector<size_t> ends;
  for (const auto& segment : example.texts) ends.push_back((text += segment.text).size());
  TokenizedExample out;
  std::vector<TextSpan> spans;
  const auto special = tokenizer_.special_tokens();
  const bool parse = options_.parse_special;
  call_plugin(tokenizer_, "encode()", [&] {
    tokenizer_.encode_with(text, {.parse_special = parse, .add_special = true}, out.ids, &spans);
  });
  mtrain::check_ids(tokenizer_, out.ids);
  auto is_special = [&](int32_t id) {
    return std::any_of(special.begin(), special.end(),
                       [id](const SpecialToken& t) { return t.id == id; });
  };
  // A text that spells its first token has it once.
  if (parse && out.ids.size() > 1 && out.ids[0] == out.ids[1] && is_special(out.ids[0]) &&
      spans[0].begin == spans[0].end) {
    out.ids.erase(out.ids.begin());
    spans.erase(spans.begin());
  }
  // Special tokens around a text (empty spans) are not trained on, except at the end.
  for (size_t i = 0; i < out.ids.size(); ++i) {
    const bool empty = spans[i].begin == spans[i].end, around = empty && is_special(out.ids[i]);
    const size_t last = empty ? spans[i].begin : spans[i].end - 1;
    auto of = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), last) - ends.begin());
    const bool trained = !around && example.texts[std::min(of, ends.size() - 1)].trained;
    out.trained.push_back(trained || options_.train_on == TrainOn::all ? 1 : 0);
  }
  if (const auto eod = tokenizer_.eod()) {
    if (out.ids.empty() || out.ids.back() != *eod)
      out.ids.push_back(*eod), out.trained.push_back(0);
    out.trained.back() = example.texts.back().trained || options_.train_on == TrainOn::all ? 1 : 0;
  }
  return out;
}

/// Segments are written with their special tokens, as <s> and </s>: they replace a template.
TokenizedExample ExampleEncoder::segments(const Example& example) const {
  const std::vector<SpecialToken> special = tokenizer_.special_tokens();
  std::vector<std::string> names;
  for (const SpecialToken& token : special) names.push_back(token.text);
  TokenizedExample out;
  for (const auto& segment : example.texts) {
    for (const chat::ChatPiece& piece : chat::split_special(chat::Text(segment.text), names)) {
      if (piece.special >= 0) {
        out.ids.push_back(special[static_cast<size_t>(piece.special)].id);
        continue;
      }
      const std::string_view text =
          std::string_view(segment.text)
              .substr(piece.bytes.begin, piece.bytes.end - piece.bytes.begin);
      call_plugin(tokenizer_, "encode()", [&] { tokenizer_.encode_to(text, out.ids); });
    }
    mtrain::check_ids(tokenizer_, out.ids);
    out.trained.resize(out.ids.size(),
                       segment.trained || options_.train_on == TrainOn::all ? 1 : 0);
  }
  return out;
}

void ExampleEncoder::check_ids(const TokenizedExample& example) const {
  const int64_t limit = tokenizer_.vocab_size();
  for (size_t i = 0; i < example.ids.size(); ++i)
    MT_USER_CHECK(
        example.ids[i] >= 0 && example.ids[i] < limit, ErrorClass::data,
        cat("token ", i, " is id ", example.ids[i], ", outside the vocabulary of ", limit),
        "the data was prepared with another tokenizer: use that one");
}

TokenizedExample ExampleEncoder::encode(const Example& example) const {
  TokenizedExample out;
  switch (example.kind) {
    case Example::Kind::chat:
      out = chat(example);
      break;
    case Example::Kind::prompted:
      out = prompted(example);
      break;
    case Example::Kind::segments:
      out = segments(example);
      break;
    case Example::Kind::tokens:
      out = {example.ids, example.trained};
      break;
  }
  check_ids(out);
  return out;
}

std::vector<TokenizedExample> ExampleEncoder::encode_all(
    std::span<const Example> examples,
    const std::function<void(const Example&, const Error&)>& rejected, int threads) const {
  std::vector<TokenizedExample> out(examples.size());
  std::vector<std::optional<Error>> faults(examples.size());
  std::atomic<size_t> next = 0;
  std::exception_ptr bug;  // the exception of one thread; guarded by `failed`
  std::atomic<bool> failed = false;
  auto work = [&] {
    for (size_t i; !failed && (i = next.fetch_add(1)) < examples.size();) {
      try {
        out[i] = encode(examples[i]);
      } catch (const Error& error) {
        faults[i].emplace(error);
      } catch (...) {
        if (!failed.exchange(true)) bug = std::current_exception();
      }
    }
  };
  size_t count = threads > 0 ? static_cast<size_t>(threads)
                             : std::max(1u, std::thread::hardware_concurrency());
  count = std::min(count, examples.size() / 16 + 1);  // each thread gets at least some records
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < count; ++i) helpers.emplace_back(work);
  work();
  for (auto& helper : helpers) helper.join();
  if (bug) std::rethrow_exception(bug);
  for (size_t i = 0; i < examples.size(); ++i)
    if (faults[i]) rejected(examples[i], *faults[i]);
  return out;
}

}  // namespace mtrain::finetune
