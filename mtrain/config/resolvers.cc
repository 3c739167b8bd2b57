#include "mtrain/config/resolvers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/override.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

const std::string& text_argument(std::string_view name, const std::vector<Node>& arguments,
                                 size_t index) {
  if (index >= arguments.size() || !arguments[index].is_scalar())
    throw InterpolationFault{cat(name, " needs a text as argument ", index + 1), ""};
  return arguments[index].as_text();
}

void want_count(std::string_view name, const std::vector<Node>& arguments, size_t low,
                size_t high) {
  if (arguments.size() >= low && arguments.size() <= high) return;
  std::string wanted = low == high ? std::to_string(low) : cat(low, " to ", high);
  throw InterpolationFault{
      cat(name, " takes ", wanted, " argument", high == 1 ? "" : "s", ", got ", arguments.size()),
      ""};
}

Node environment(std::string_view name, const std::vector<Node>& arguments,
                 const InterpolationScope& scope) {
  want_count(name, arguments, 1, 2);
  const std::string& variable = text_argument(name, arguments, 0);
  std::optional<std::string> value;
  if (scope.environment) {
    value = scope.environment(variable);
  } else if (const char* found = std::getenv(variable.c_str())) {
    value = found;
  }
  if (value && !valid_utf8(*value))
    throw InterpolationFault{cat("the environment variable ", visible(variable), " is not UTF-8"),
                             ""};
  if (value && suggests_secret(variable)) return Node::string(*value).mark_confidential();
  if (value) return Node::string(*value);
  if (arguments.size() == 1)
    throw InterpolationFault{
        cat("the environment variable ", visible(variable), " is not set"),
        cat("set it, or give a default: ${", name, ":", visible(variable), ",DEFAULT}")};
  // A default is converted to a string like the variable's value, but null stays null.
  if (arguments[1].is_null() || !arguments[1].is_scalar()) return arguments[1];
  return Node::string(arguments[1].as_text());
}

Node formatted_time(const std::vector<Node>& arguments, const InterpolationScope& scope) {
  want_count("now", arguments, 0, 1);
  std::string format = arguments.empty() ? "%Y-%m-%d_%H-%M-%S" : text_argument("now", arguments, 0);
  if (format.empty() || format.size() > 256)
    throw InterpolationFault{"now needs a short format such as %Y-%m-%d", ""};
  std::tm parts{};
  localtime_r(&scope.now, &parts);
  std::array<char, 1024> buffer{};
  // The format comes from the recipe; the buffer bounds the output of strftime.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  size_t length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
#pragma GCC diagnostic pop
  return Node::string(std::string(buffer.data(), length));
}

}  // namespace

bool suggests_secret(std::string_view name) {
  static constexpr std::string_view kWords[] = {
      "AUTH",       "BEARER", "COOKIE", "CREDENTIAL", "CREDENTIALS", "PASS",
      "PASSPHRASE", "PASSWD", "PAT",    "PRIVATE",    "SECRETS"};  // MAX_TOKENS and SORT_KEYS are
                                                                   // not secrets
  static constexpr std::string_view kEnds[] = {"KEY", "PASSWORD", "SECRET",
                                               "TOKEN"};  // HFTOKEN, APIKEY
  auto secret = [](std::string_view word) {
    return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords) ||
           std::any_of(std::begin(kEnds), std::end(kEnds),
                       [&](std::string_view end) { return word.ends_with(end); });
  };
  std::string word;
  for (char c : name) {
    if (std::isalpha(static_cast<unsigned char>(c)))
      word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    else if (secret(std::exchange(word, {})))
      return true;
  }
  return secret(word);
}

Node decode_value(std::string_view text) {
  Report report;
  auto source = std::make_shared<Source>(SourceKind::built_in, "interpolation", std::string(text));
  auto value = parse_override_value(source, 0, report);
  if (!value)
    throw InterpolationFault{cat("'", visible(text, 60), "': ", report.diagnostics()[0].message),
                             ""};
  return std::move(*value);
}

std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> out;
  if (trim(text).empty()) return out;
  int depth = 0;
  char quote = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\\') {
      ++i;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth;
    } else if (c == ']' || c == '}' || c == ')') {
      --depth;
    } else if (c == ',' && depth == 0) {
      out.emplace_back(trim(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  out.emplace_back(trim(text.substr(begin)));
  return out;
}

std::optional<Node> call_resolver(std::string_view name, const std::vector<Node>& arguments,
                                  const InterpolationScope& scope) {
  if (name == "oc.env" || name == "env") return environment(name, arguments, scope);
  if (name == "now") return formatted_time(arguments, scope);
  if (name == "oc.decode") {
    want_count(name, arguments, 1, 1);
    if (arguments[0].is_null()) return Node::plain("null");
    return decode_value(text_argument(name, arguments, 0));
  }
  if (name == "oc.create") {
    want_count(name, arguments, 1, 1);
    return arguments[0];
  }
  auto custom = scope.resolvers.find(std::string(name));
  if (custom == scope.resolvers.end()) return std::nullopt;
  try {
    return custom->second(arguments);
  } catch (const Error& error) {
    throw InterpolationFault{error.message(), error.hint()};
  }
}

}  // namespace mtrain
