#include "mtrain/config/defaults_list.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/resolvers.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

bool name_character(char c) {
  auto u = static_cast<unsigned char>(c);
  return u >= 0x80 || std::isalnum(u) ||
         std::string_view("_-./${}@:?+").find(c) != std::string_view::npos;
}

bool is_path(std::string_view path) {
  if (path.empty() || !std::all_of(path.begin(), path.end(), name_character)) return false;
  for (const auto& part : split(path, '/'))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

bool is_package(std::string_view package) {
  return !package.empty() && package.front() != '.' && package.back() != '.' &&
         package.find("..") == std::string_view::npos &&
         std::all_of(package.begin(), package.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
         });
}

class ListParser {
 public:
  explicit ListParser(Report& report) : report_(report) {}

  std::optional<DefaultsEntry> entry(const Node& item) {
    DefaultsEntry out;
    out.where = item.loc();
    if (item.is_map() && item.size() == 1) return group(item.entries()[0], std::move(out));
    if (item.is_map() && item.size() > 1)
      return fail(item, "an entry must name one group",
                  "write each group on its own line: - group: option");
    if (!item.is_scalar() || item.is_null())
      return fail(item, cat("wanted a name or group: option, got ", brief(item)), "");
    return config(item, std::move(out));
  }

 private:
  std::nullopt_t fail(const Node& item, const std::string& message, const std::string& help) {
    report_.error("defaults", "defaults", item.loc(), message).fix(help);
    return std::nullopt;
  }

  /// "- server/apache@admin", "- _self_", "- ./common.yaml"
  std::optional<DefaultsEntry> config(const Node& item, DefaultsEntry out) {
    std::string_view text = item.as_text();
    if (text == "_self_") {
      out.kind = DefaultsEntry::Kind::self;
      return out;
    }
    if (text.starts_with("_self_@"))
      return fail(item, "_self_ cannot have a package", "write - _self_");
    if (text.find(' ') != std::string_view::npos)
      return fail(item, cat("'", visible(text, 60), "' is not the name of a config"),
                  "'optional' and 'override' are written before group: option");
    if (text.starts_with("./")) {
      if (!is_path(text.substr(2)) || !text.ends_with(".yaml"))
        return fail(item, cat("'", visible(text, 60), "' is not a file next to this one"),
                    "write ./NAME.yaml");
      out.kind = DefaultsEntry::Kind::include;
      out.name = text.substr(2);
      return out;
    }
    if (!set_group(out, text))
      return fail(item, cat("'", visible(text, 60), "' is not the name of a config"),
                  "'..' and '\\' cannot be used; a leading '/' starts at the search path");
    size_t slash = out.group.rfind('/');
    out.name = slash == std::string::npos ? out.group : out.group.substr(slash + 1);
    out.group = slash == std::string::npos ? "" : out.group.substr(0, slash);
    return out;
  }

  /// Replaces each ${oc.env:VAR}; keeps ${group}, since the choices are not known yet. Nothing when
  /// there is a fault.
  std::optional<Node> with_environment(Node value) {
    if (value.is_list()) {
      for (Node& item : value.items()) {
        auto filled = with_environment(item);
        if (!filled) return std::nullopt;
        item = std::move(*filled);
      }
      return value;
    }
    if (!value.is_scalar() || value.is_null()) return value;
    std::string text = value.as_text();
    for (size_t begin = 0; (begin = text.find("${", begin)) != std::string::npos;) {
      const size_t end = text.find('}', begin), colon = text.find(':', begin);
      if (end == std::string::npos || colon > end) {
        begin += 2;
        continue;
      }
      auto resolved = environment_value(value, text.substr(begin + 2, colon - begin - 2),
                                        text.substr(colon + 1, end - colon - 1));
      if (!resolved) return std::nullopt;
      text.replace(begin, end + 1 - begin, *resolved);
      begin += resolved->size();
    }
    if (text == value.as_text()) return value;
    return Node::string(text).set_location(value.loc());
  }

  /// The value of ${resolver:arguments} in a choice, where only environment variables are
  /// available.
  std::optional<std::string> environment_value(const Node& item, const std::string& resolver,
                                               const std::string& arguments) {
    if (resolver != "oc.env" && resolver != "env")
      return fail(item,
                  cat("${", visible(resolver, 30),
                      ":…} cannot choose an option: configs are chosen before it is evaluated"),
                  "use ${oc.env:VARIABLE}, ${GROUP} for another choice of this list, or choose by "
                  "group=option on the command line");
    std::vector<Node> texts;
    for (const auto& argument : split_arguments(arguments))
      texts.push_back(Node::string(std::string(trim(argument))));
    try {
      auto value = call_resolver(resolver, texts, {});
      if (value && !value->confidential()) return value->as_text();
      return fail(item,
                  cat("${", resolver, ":", visible(arguments, 60),
                      "} may be a secret, but the names of configs are shown"),
                  "use a variable with another name");
    } catch (const InterpolationFault& fault) {
      return fail(item, fault.message, fault.help);
    }
  }

  /// "- optional server/db@src: mysql"
  std::optional<DefaultsEntry> group(const Node::Entry& item, DefaultsEntry out) {
    out.kind = DefaultsEntry::Kind::group;
    out.where = item.key_where;
    auto words = split(item.key, ' ');
    std::erase(words, "");
    std::string key = words.empty() ? "" : words.back();
    if (!words.empty()) words.pop_back();
    for (const auto& word : words) {
      if (word == "optional")
        out.optional = true;
      else if (word == "override")
        out.overrides = true;
      else
        return fail(item.value, cat("unknown word '", visible(word, 30), "'"),
                    "only 'optional' and 'override' can be written before a group");
    }
    if (out.optional && out.overrides)
      return fail(item.value, "an override cannot be optional",
                  "write 'optional' in the entry that is overridden");
    if (!set_group(out, key))
      return fail(item.value, cat("'", visible(key, 60), "' is not a group"),
                  "'..' and '\\' cannot be used; a leading '/' starts at the search path");
    auto option = with_environment(item.value);
    if (!option) return std::nullopt;
    if (!set_option(out, *option))
      return fail(item.value, cat("wanted an option, null or [a, b], got ", brief(item.value)), "");
    move_folders_to_group(out);
    return out;
  }

  Report& report_;
};

}  // namespace

bool set_group(DefaultsEntry& entry, std::string_view key) {
  size_t at = key.find('@');
  std::string_view group = key.substr(0, at);
  if (at != std::string_view::npos) {
    std::string_view package = key.substr(at + 1);
    if (!is_package(package)) return false;
    entry.package = std::string(package);
  }
  entry.absolute = group.starts_with('/');
  if (entry.absolute) group.remove_prefix(1);
  entry.group = std::string(group);
  return is_path(group) && group.find_first_of("${}@:?") == std::string_view::npos;
}

bool set_option(DefaultsEntry& entry, const Node& value) {
  entry.options.clear();
  entry.name.reset();
  entry.is_list = value.is_list();
  if (value.is_null()) return true;
  if (value.is_list()) {
    for (const auto& item : value.items()) {
      if (!item.is_scalar() || item.is_null() || !is_path(item.as_text())) return false;
      entry.options.push_back(item.as_text());
    }
    return true;
  }
  if (!value.is_scalar() || !is_path(value.as_text())) return false;
  entry.name = value.as_text();
  return true;
}

void move_folders_to_group(DefaultsEntry& entry) {
  if (!entry.name || entry.is_interpolated()) return;
  size_t slash = entry.name->rfind('/');
  if (slash == std::string::npos) return;
  entry.group += "/" + entry.name->substr(0, slash);
  entry.name->erase(0, slash + 1);
}

std::vector<DefaultsEntry> parse_defaults(const Node& list, Report& report) {
  std::vector<DefaultsEntry> out;
  if (!list.is_list()) {
    if (list.is_null()) return out;
    auto& fault = report.error("defaults", "defaults", list.loc(),
                               cat("wanted a list, got ", describe(list.kind())));
    const bool map = list.is_map() && list.size() > 0;
    fault.fix(cat("write each entry on its own line, `- ", map ? list.entries()[0].key + ": " : "",
                  map             ? brief(list.entries()[0].value)
                  : list.is_map() ? "group: option"
                                  : brief(list),
                  "`"));
    return out;
  }
  ListParser parser(report);
  bool has_self = false, has_plain = false, has_override = false;
  for (const auto& item : list.items()) {
    auto entry = parser.entry(item);
    if (!entry) continue;
    if (entry->kind == DefaultsEntry::Kind::self) {
      if (has_self)
        report.error("defaults", "defaults", item.loc(), "_self_ appears twice")
            .fix("keep one of the two");
      has_self = true;
    } else if (!entry->overrides && has_override) {
      report.error("defaults", "defaults", item.loc(), "comes after an override")
          .fix("move the overrides to the end of the list");
    }
    has_plain = has_plain || !entry->overrides;
    has_override = has_override || entry->overrides;
    out.push_back(std::move(*entry));
  }
  if (!has_self && (has_plain || out.empty())) {
    DefaultsEntry self;
    self.kind = DefaultsEntry::Kind::self;
    self.where = list.loc();
    out.push_back(std::move(self));
  }
  return out;
}

}  // namespace mtrain
