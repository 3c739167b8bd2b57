#include "mtrain/data/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <typeinfo>

#include "mtrain/base/error.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/text.h"
#include "mtrain/data/id_range.h"

namespace mtrain {
namespace {

std::string decode_through(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  return call_plugin(tokenizer, "decode()", [&] { return tokenizer.decode_bytes(ids); });
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// The number of bytes at the start of `text` that could begin one character; at least 1. (The
/// "maximal subpart" of the Unicode Standard, section 3.9.)
size_t broken_start(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t wanted = lead >= 0xF0 && lead <= 0xF4  ? 4
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xC2                ? 2
                                                      : 1;
  if (lead > 0xF4 || text.size() < 2 || wanted == 1) return 1;
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 1;
  size_t size = 2;
  while (size < wanted && size < text.size() && (byte(size) & 0xC0) == 0x80) ++size;
  return size;
}

/// True when all of `text` could be the start of one character.
bool unfinished(std::string_view text) {
  if (text.empty()) return false;
  auto lead = static_cast<unsigned char>(text[0]);
  const size_t wanted = lead >= 0xF0 && lead <= 0xF4  ? 4
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xC2                ? 2
                                                      : 1;
  return lead <= 0xF4 && text.size() < wanted && broken_start(text) == text.size();
}

/// Converts bytes to well-formed UTF-8. With `rest`, omits an incomplete character at the end and
/// returns its size in `rest`.
std::string replace_broken(std::string_view bytes, size_t* rest) {
  std::string out;
  size_t bad = 0;
  if (rest) *rest = 0;
  while (!valid_utf8(bytes, &bad)) {
    out.append(bytes.substr(0, bad));
    bytes.remove_prefix(bad);
    if (rest && unfinished(bytes)) return *rest = bytes.size(), out;
    out.append(kReplacement);
    bytes.remove_prefix(broken_start(bytes));
  }
  return out.append(bytes);
}

}  // namespace

void Tokenizer::encode_with(std::string_view text, const EncodeOptions& options,
                            std::vector<int32_t>& ids, std::vector<TextSpan>* spans) const {
  MT_USER_CHECK(!options.parse_special, ErrorClass::config,
                cat("the tokenizer ", name(), " does not support special tokens in text"),
                "leave --parse-special out");
  const size_t first = ids.size();
  encode_to(text, ids);
  if (!spans) return;
  size_t at = 0;
  for (size_t i = first; i < ids.size(); ++i) {
    const std::string bytes = decode_bytes({&ids[i], 1});
    MT_USER_CHECK(
        text.substr(at).starts_with(bytes), ErrorClass::data,
        cat("the tokenizer ", name(), " does not report the positions of its tokens in the text"),
        "decode_bytes() does not give back the text, so the plugin must override encode_with()");
    size_t begin = at, end = at + bytes.size();
    auto inside = [&](size_t i) {
      return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    };
    while (begin > 0 && inside(begin)) --begin;
    while (end > at && inside(end)) ++end;
    spans->push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    at += bytes.size();
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  call_plugin(*this, "encode()", [&] { encode_to(text, ids); });
  check_ids(*this, ids);
  return ids;
}

std::vector<std::vector<int32_t>> Tokenizer::encode_batch(std::span<const std::string_view> texts,
                                                          int threads) const {
  std::vector<std::vector<int32_t>> out(texts.size());
  std::atomic<size_t> next{0};
  std::exception_ptr fault;
  std::mutex mutex;
  auto work = [&] {
    try {
      for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < texts.size();) {
        call_plugin(*this, "encode()", [&] { encode_to(texts[i], out[i]); });
        check_ids(*this, out[i]);
      }
    } catch (...) {
      next = texts.size();
      std::lock_guard lock(mutex);
      if (!fault) fault = std::current_exception();
    }
  };
  if (threads <= 0) threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const size_t helpers = std::min(static_cast<size_t>(threads), texts.size());
  {
    std::vector<std::jthread> pool;
    for (size_t i = 1; i < helpers; ++i) pool.emplace_back(work);
    work();
  }
  if (fault) std::rethrow_exception(fault);
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  return replace_broken(decode_through(*this, ids), nullptr);
}

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  const std::string bytes = decode_through(tokenizer_, ids_);
  if (bytes.size() <= returned_bytes_) return {};
  size_t rest = 0;
  std::string out = replace_broken(std::string_view(bytes).substr(returned_bytes_), &rest);
  returned_bytes_ = bytes.size() - rest;
  if (rest > 0) return out;
  // Everything is returned: the new ids suffice as context for the following ones, unless they
  // produce no text by themselves.
  const std::string context = decode_through(tokenizer_, std::span(ids_).subspan(returned_ids_));
  if (context.empty()) return out;
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(returned_ids_));
  returned_ids_ = ids_.size();
  returned_bytes_ = context.size();
  return out;
}

std::string StreamDecoder::finish() {
  const std::string bytes = decode_through(tokenizer_, ids_);
  std::string out = bytes.size() > returned_bytes_
                        ? replace_broken(std::string_view(bytes).substr(returned_bytes_), nullptr)
                        : std::string();
  ids_.clear();
  returned_ids_ = returned_bytes_ = 0;
  return out;
}

void check_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const int64_t vocab = tokenizer.vocab_size();
  const int64_t at = first_outside(ids, 0, vocab);
  if (at < 0) return;
  const PluginCode* plugin = plugin_at(&typeid(tokenizer));
  throw Error(ErrorClass::plugin,
              cat(plugin ? plugin->title : cat("the tokenizer ", tokenizer.name()),
                  " gave an id outside its vocabulary of ", vocab, ": token ", at, " of a text is ",
                  ids[static_cast<size_t>(at)]),
              "vocab_size() is the largest id plus one: correct it, or the ids, in the plugin");
}

std::vector<int32_t> tokens_before_text(const Tokenizer& tokenizer) {
  if (tokenizer.special_tokens().empty()) return {};
  const std::string_view text = "a";
  const std::vector<int32_t> plain = tokenizer.encode(text);
  std::vector<int32_t> ids;
  call_plugin(tokenizer, "encode()",
              [&] { tokenizer.encode_with(text, {.add_special = true}, ids, nullptr); });
  check_ids(tokenizer, ids);
  ids.erase(std::search(ids.begin(), ids.end(), plain.begin(), plain.end()), ids.end());
  return ids;
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  size_t bad = 0;
  while (!valid_utf8(bytes, &bad)) {
    out.append(bytes.substr(0, bad)).append(kReplacement);
    bytes.remove_prefix(bad + 1);
  }
  return out.append(bytes);
}

}  // namespace mtrain
