#include "json_item.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"

namespace mtrain::hf {
namespace {

constexpr size_t kMaxDepth = 64, kMaxBytes = size_t{1} << 30;
constexpr const char* kHint = "the tokenizer's file is damaged or of another kind: get it again";

/// Keeps the message of the first fault.
struct ParseFault final : nlohmann::json_sax<nlohmann::json> {
  std::string text;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& e) override {
    return text = e.what(), false;
  }
};

}  // namespace

void JsonItem::fail(const std::string& what) const {
  throw Error(ErrorClass::data, cat(path_, ": ", what), kHint);
}

std::string_view JsonItem::text() const {
  std::string_view out;
  if (value_.get_string().get(out) != simdjson::SUCCESS) fail("must be a string");
  return out;
}

int64_t JsonItem::integer() const {
  int64_t out = 0;
  if (value_.get_int64().get(out) != simdjson::SUCCESS) fail("must be an integer");
  return out;
}

double JsonItem::number() const {
  double out = 0;
  if (value_.get_double().get(out) != simdjson::SUCCESS) fail("must be a number");
  return out;
}

bool JsonItem::flag() const {
  bool out = false;
  if (value_.get_bool().get(out) != simdjson::SUCCESS) fail("must be true or false");
  return out;
}

simdjson::dom::array JsonItem::array() const {
  simdjson::dom::array out;
  if (value_.get_array().get(out) != simdjson::SUCCESS) fail("must be a list");
  return out;
}

simdjson::dom::object JsonItem::object() const {
  simdjson::dom::object out;
  if (value_.get_object().get(out) != simdjson::SUCCESS) fail("must be an object");
  return out;
}

std::vector<JsonItem> JsonItem::items() const {
  std::vector<JsonItem> out;
  for (auto value : array()) out.emplace_back(value, cat(path_, "[", out.size(), "]"));
  return out;
}

std::optional<JsonItem> JsonItem::find(std::string_view key) const {
  simdjson::dom::element out;
  if (object().at_key(key).get(out) != simdjson::SUCCESS || out.is_null()) return std::nullopt;
  const bool top = path_.ends_with(": ");
  return JsonItem(out, cat(path_, top || path_.empty() ? "" : ".", printable(key, 60)));
}

JsonItem JsonItem::at(std::string_view key) const {
  auto out = find(key);
  if (!out) fail(cat("'", printable(key, 60), "' is missing"));
  return *out;
}

JsonItem JsonItem::operator[](size_t index) const {
  simdjson::dom::element out;
  if (array().at(index).get(out) != simdjson::SUCCESS) fail(cat("an item ", index, " is missing"));
  return {out, cat(path_, "[", index, "]")};
}

std::string JsonItem::text_or(std::string_view key, std::string_view otherwise) const {
  auto out = find(key);
  return std::string(out ? out->text() : otherwise);
}

bool JsonItem::flag_or(std::string_view key, bool otherwise) const {
  auto out = find(key);
  return out ? out->flag() : otherwise;
}

int64_t JsonItem::integer_or(std::string_view key, int64_t otherwise) const {
  auto out = find(key);
  return out ? out->integer() : otherwise;
}

JsonItem parse_json(simdjson::dom::parser& parser, const simdjson::padded_string& text,
                    const std::string& name) {
  MT_USER_CHECK(
      text.size() <= kMaxBytes, ErrorClass::data,
      cat(name, " has ", human_bytes(text.size()), "; the limit is ", human_bytes(kMaxBytes)),
      kHint);
  simdjson::dom::element root;
  auto fault = parser.allocate(std::max<size_t>(text.size(), 64), kMaxDepth);
  if (fault == simdjson::SUCCESS) fault = parser.parse(text).get(root);
  if (fault == simdjson::SUCCESS) {
    JsonItem out(root, name + ": ");
    if (!out.is_object()) out.fail("must be an object");
    return out;
  }
  std::string what = simdjson::error_message(fault);
  if (fault != simdjson::DEPTH_ERROR && fault != simdjson::MEMALLOC) {
    ParseFault where;  // slower, but reports the position
    nlohmann::json::sax_parse(std::string_view(text), &where);
    if (auto at = where.text.find("parse error at "); at != std::string::npos)
      what = printable(std::string_view(where.text).substr(at + 15), 200);
  }
  throw Error(ErrorClass::data, cat(name, " is not valid JSON: ", what), kHint);
}

}  // namespace mtrain::hf
