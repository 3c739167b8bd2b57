#include "turns.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "mtrain/base/error.h"

namespace mtrain::chat {
namespace {

using VK = Value::Kind;

std::string role_of(const Value& message) {
  if (!message.is(VK::map)) return "";
  const Value* role = message.as_map().find("role");
  return role && role->is(VK::text) ? role->as_text().bytes : "";
}

/// False for text of the template, and for roles and tools.
bool is_message(Origin origin) { return origin != kTemplate && origin != kOtherInput; }

bool says_assistant(const Value& message) { return role_of(message) == "assistant"; }

/// The bytes from the first to the last one of a message; empty where the text has none.
Stretch words_of(const Text& text, size_t message) {
  Stretch out{text.bytes.size(), 0};
  for (size_t i = 0; i < text.origins.size(); ++i) {
    if (text.origins[i] != message + 1) continue;
    out.begin = std::min(out.begin, i);
    out.end = i + 1;
  }
  return out.end == 0 ? Stretch{} : out;
}

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

/// The texts that are one special token: those given by the input, and those of the template that
/// look like special tokens.
std::vector<std::string> special_texts(const ChatInput& input, const Text& text) {
  std::vector<std::string> out = input.special_tokens;
  for (const auto& [name, token] : input.special) out.push_back(token);
  for (std::string& mark : special_marks(text)) out.push_back(std::move(mark));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/// Finds the turns of one rendered conversation. The end of a turn is the text that the template
/// writes after an answer regardless of what follows, up to the end of its first run of special
/// tokens; a token that opens a header is not part of it.
class Turns {
 public:
  Turns(const ChatInput& input, const RenderMessages& render, RenderedChat& chat)
      : input_(input),
        render_(render),
        chat_(chat),
        messages_(input.messages.items()),
        names_(special_texts(input, chat.text)),
        pieces_(split_special(chat.text, names_)) {
    for (size_t m = 0; m < messages_.size(); ++m) words_.push_back(words_of(chat_.text, m));
  }

  void find() {
    const bool speaks = std::any_of(messages_.begin(), messages_.end(), says_assistant);
    if (!speaks && chat_.mask == RenderedChat::Mask::none) return;
    find_opener();
    if (chat_.mask == RenderedChat::Mask::generation) return close_generations();
    find_prompt();
    if (!by_prefixes()) by_origins();
  }

 private:
  std::string_view text() const { return chat_.text.bytes; }
  std::string_view text_of(const ChatPiece& piece) const {
    return text().substr(piece.bytes.begin, piece.bytes.end - piece.bytes.begin);
  }

  /// Finds the first special token, when it precedes the words of all messages; skips bos and eos.
  void find_opener() {
    auto words = std::find_if(chat_.text.origins.begin(), chat_.text.origins.end(),
                              [](Origin o) { return o != kTemplate; });
    const auto first_words = static_cast<size_t>(words - chat_.text.origins.begin());
    for (const auto& piece : pieces_) {
      if (piece.special < 0 || is_named(piece, "bos_token") || is_named(piece, "eos_token"))
        continue;
      if (piece.bytes.end <= first_words) opener_ = text_of(piece);
      return;
    }
  }

  bool is_named(const ChatPiece& piece, const char* name) const {
    auto found = input_.special.find(name);
    return found != input_.special.end() && text_of(piece) == found->second;
  }

  /// Finds the generation prompt, and whether the template writes it only when it is requested.
  void find_prompt() {
    try {
      const Text with = render_(messages_, true), without = render_(messages_, false);
      size_t same = common_prefix(with.bytes, without.bytes);
      asked_ = with.bytes != without.bytes;
      if (asked_) {
        for (const auto& piece : split_special(with, names_))
          if (piece.special >= 0 && piece.bytes.begin < same && piece.bytes.end > same)
            same = piece.bytes.begin;
      } else {
        const size_t words_end = last_words(with);
        same = opener_.empty() ? std::string::npos : with.bytes.find(opener_, words_end);
      }
      if (same < with.bytes.size())
        prompt_ = with.bytes.substr(
            std::min(with.bytes.size(), with.bytes.find_first_not_of(" \n", same)));
    } catch (const Error&) {
      asked_ = false;  // the template requires another message first
    }
  }

  static size_t last_words(const Text& text) {
    auto last = std::find_if(text.origins.rbegin(), text.origins.rend(),
                             [](Origin o) { return o != kTemplate; });
    return static_cast<size_t>(text.origins.rend() - last);
  }

  List first_messages(size_t count) const {
    return List(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// The number of bytes after the words of message m, which end at `end`, that do not depend on
  /// what follows; npos when not known.
  size_t closing_limit(size_t m, size_t end) const {
    const std::string_view tail = text().substr(end);
    size_t limit = std::string::npos;
    auto compare = [&](List messages) {
      try {
        const Text other = render_(messages, false);
        const size_t other_end = words_of(other, m).end;
        if (other_end > 0)
          limit =
              std::min(limit, common_prefix(tail, std::string_view(other.bytes).substr(other_end)));
      } catch (const Error&) {  // the template refuses a conversation that ends here
      }
    };
    compare(first_messages(m + 1));
    auto user = std::find_if(messages_.begin(), messages_.end(),
                             [](const Value& v) { return role_of(v) == "user"; });
    if (!asked_ && user != messages_.end()) {  // the rendering contains the header of the next
                                               // assistant turn, but not of a user's turn
      List more = first_messages(m + 1);
      more.push_back(*user);
      compare(std::move(more));
    }
    return limit == std::string::npos ? limit : end + limit;
  }

  /// The end of the turn whose words end at `end`. Nothing after `limit` belongs to the turn; npos
  /// when not known.
  size_t turn_end(size_t end, size_t limit) const {
    size_t out = end, text_end = limit == std::string::npos ? end : limit;
    for (const auto& piece : pieces_) {
      if (piece.bytes.end <= end) continue;
      if (piece.special < 0) {
        const bool words =
            std::any_of(chat_.text.origins.begin() +
                            static_cast<std::ptrdiff_t>(std::max(end, piece.bytes.begin)),
                        chat_.text.origins.begin() + static_cast<std::ptrdiff_t>(piece.bytes.end),
                        [](Origin o) { return o != kTemplate; });
        if (out > end || words) break;
        continue;
      }
      if (piece.bytes.end > limit || text_of(piece) == opener_) {
        text_end = std::min(text_end, piece.bytes.begin);
        break;
      }
      if (out > end && piece.bytes.begin != out) break;
      out = piece.bytes.end;
    }
    if (out > end) return out;
    while (text_end > end && text_end < text().size() &&
           (static_cast<unsigned char>(text()[text_end]) & 0xC0) == 0x80)
      --text_end;
    return std::max(end, text_end);  // no special token ends turns, so plain text ends this one
  }

  /// Uses the template's {% generation %} blocks, extended by the special tokens right after the
  /// last block of a turn.
  void close_generations() {
    std::vector<Stretch> marked = std::move(chat_.assistant);
    chat_.assistant.clear();
    auto speaker = [&](const Stretch& s, bool last) {
      Origin out = kTemplate;
      for (size_t i = s.begin; i < s.end && (last || out == kTemplate); ++i)
        if (chat_.text.origins[i] != kTemplate) out = chat_.text.origins[i];
      return out;
    };
    for (size_t i = 0; i < marked.size(); ++i) {
      Stretch s = marked[i];
      const bool goes_on =
          i + 1 < marked.size() && speaker(marked[i + 1], false) == speaker(s, true);
      const size_t words_end = text().find_last_not_of(" \n", s.end - 1) + 1;
      const bool closed = std::any_of(pieces_.begin(), pieces_.end(), [&](const ChatPiece& p) {
        return p.special >= 0 && p.bytes.end == words_end;
      });
      if (!goes_on && !closed) s.end = turn_end(s.end, std::string::npos);
      add_stretch(chat_.assistant, s);
    }
  }

  /// The header of an answer, for a template without a generation prompt: the text between `before`
  /// and the words of a plain answer.
  std::string header_of_answer(size_t m, const std::string& before) const {
    List messages = first_messages(m);
    messages.push_back(Value::map(
        {{Value::text(Text("role")), Value::text(Text("assistant"))},
         {Value::text(Text("content")), Value::text(Text("x", static_cast<Origin>(m + 1)))}}));
    const Text plain = render_(messages, false);
    const size_t begin = words_of(plain, m).begin;
    if (!plain.bytes.starts_with(before) || begin < before.size()) return "";
    return plain.bytes.substr(before.size(), begin - before.size());
  }

  bool by_prefixes() {
    std::vector<Stretch> found;
    for (size_t m = 0; m < messages_.size(); ++m) {
      if (!says_assistant(messages_[m])) continue;
      try {
        const std::string before = render_(first_messages(m), true).bytes;
        const std::string after = render_(first_messages(m + 1), false).bytes;
        if (!after.starts_with(before) || !text().starts_with(after)) return false;
        Stretch turn{before.size(), after.size()};
        if (!asked_ && prompt_.empty()) {
          std::string header = header_of_answer(m, before);
          while (header.ends_with(' '))
            header.pop_back();  // the space belongs to the answer's first token
          if (text().substr(turn.begin).starts_with(header)) turn.begin += header.size();
        }
        const size_t words_end = std::max(words_[m].end, turn.begin);
        turn.end = turn_end(words_end, std::min(after.size(), closing_limit(m, words_end)));
        add_stretch(found, turn);
      } catch (const Error&) {
        return false;  // the template refuses a conversation that ends here
      }
    }
    chat_.assistant = std::move(found);
    chat_.mask = RenderedChat::Mask::prefixes;
    return true;
  }

  /// Where the words of an answer without words would be; at 0 when not known. Its end of turn is
  /// trained on.
  Stretch empty_answer(size_t m) const {
    List messages = messages_;
    std::vector<std::pair<Value, Value>> entries = messages[m].as_map().entries;
    for (auto& [key, value] : entries)
      if (key.as_text().bytes == "content")
        value = Value::text(Text("x", static_cast<Origin>(m + 1)));
    messages[m] = Value::map(std::move(entries));
    try {
      const Text filled = render_(messages, input_.add_generation_prompt);
      const size_t begin = words_of(filled, m).begin;
      if (common_prefix(filled.bytes, text()) >= begin) return {begin, begin};
    } catch (const Error&) {  // the template refuses the filled conversation
    }
    return {};
  }

  void by_origins() {
    for (size_t m = 0; m < messages_.size(); ++m) {
      if (!says_assistant(messages_[m])) continue;
      Stretch turn = words_[m].end > 0 ? words_[m] : empty_answer(m);
      if (turn.end == 0) continue;
      // The text between the generation prompt and the words is trained, too, e.g. the beginning of
      // a tool call.
      size_t written = turn.begin;  // the end of what other messages say
      while (written > 0 && !is_message(chat_.text.origins[written - 1])) --written;
      const size_t prompt =
          prompt_.empty() ? std::string::npos : text().substr(0, turn.begin).rfind(prompt_);
      if (prompt != std::string::npos && prompt >= written) turn.begin = prompt + prompt_.size();
      turn.end = turn_end(turn.end, closing_limit(m, turn.end));
      add_stretch(chat_.assistant, turn);
    }
    chat_.mask = RenderedChat::Mask::origins;
  }

  const ChatInput& input_;
  const RenderMessages& render_;
  RenderedChat& chat_;
  const List& messages_;
  const std::vector<std::string> names_;
  const std::vector<ChatPiece> pieces_;
  std::vector<Stretch> words_;  // of each message
  std::string opener_;          // the special token that begins headers
  std::string prompt_;          // the generation prompt without leading white space
  bool asked_ = true;           // the template writes the prompt only when it is requested
};

}  // namespace

void add_stretch(std::vector<Stretch>& to, Stretch next) {
  if (next.end <= next.begin) return;
  if (!to.empty() && next.begin <= to.back().end)
    to.back().end = std::max(to.back().end, next.end);
  else
    to.push_back(next);
}

std::vector<std::string> special_marks(const Text& text) {
  static constexpr std::pair<std::string_view, std::string_view> kForms[] = {
      {"<|", "|>"}, {"<｜", "｜>"}, {"<", "_of_turn>"}};
  constexpr size_t kLongest = 64;
  std::vector<std::string> out;
  const std::string_view all = text.bytes;
  for (size_t at = all.find('<'); at != std::string_view::npos; at = all.find('<', at + 1)) {
    for (const auto& [open, close] : kForms) {
      if (!all.substr(at).starts_with(open)) continue;
      const size_t end = all.find(close, at + open.size());
      if (end == std::string_view::npos || end - at > kLongest || end == at + open.size()) continue;
      const std::string_view mark = all.substr(at, end + close.size() - at);
      if (mark.find_first_of(" \n\t<", 1) != std::string_view::npos) continue;
      auto from = text.origins.begin() + static_cast<std::ptrdiff_t>(at);
      if (std::all_of(from, from + static_cast<std::ptrdiff_t>(mark.size()),
                      [](Origin o) { return o == kTemplate; }))
        out.emplace_back(mark);
      break;
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void mark_assistant_turns(const ChatInput& input, const RenderMessages& render,
                          RenderedChat& chat) {
  Turns(input, render, chat).find();
}

}  // namespace mtrain::chat
