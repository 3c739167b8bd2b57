#include "mtrain/config/yaml_load.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_mistakes.h"
#include "mtrain/config/yaml_text.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {

struct YamlEvent {
  enum class Type : uint8_t { null, alias, scalar, list_begin, list_end, map_begin, map_end };
  Type type;
  size_t offset = 0;  // bytes into the text
  YAML::anchor_t anchor = 0;
  std::string tag, value;
};

namespace {

constexpr std::string_view kMissing = "???", kStringTag = "tag:yaml.org,2002:str";

/// The parser reads '?' in [ ] and { } as the start of a key, so ??? is passed to it as a control
/// character, which no text can contain; one is chosen that no string of this text produces by an
/// escape.
std::string stand_in(std::string_view text) {
  char c = 1;
  auto escaped = [&](std::string_view zeros) {
    return text.find(cat("\\", zeros, static_cast<char>('0' + c))) != std::string_view::npos;
  };
  while (c < 6 && (escaped("x0") || escaped("u000") || escaped("U0000000"))) ++c;
  return std::string(kMissing.size(), c);
}

/// yaml-cpp converts \N (U+0085) and \_ (U+00A0) to single bytes. The text is well-formed UTF-8, so
/// an invalid byte can only come from them.
std::string with_whole_characters(std::string value) {
  size_t bad = 0;
  if (valid_utf8(value, &bad)) return value;
  std::string out;
  std::string_view rest = value;
  do {
    out.append(rest.substr(0, bad)).append({'\xC2', rest[bad]});
    rest.remove_prefix(bad + 1);
  } while (!valid_utf8(rest, &bad));
  return out.append(rest);
}

/// Ends the parse early; the reason is already in the report.
struct Stop {};

/// Records the parser's events in a flat, bounded list. Nothing is expanded here, so no input can
/// make it recurse or grow without bound.
class EventList final : public YAML::EventHandler {
 public:
  EventList(const TextIndex& text, std::string stand_in, const YamlLimits& limits, Report& report)
      : text_(text), stand_in_(std::move(stand_in)), limits_(limits), report_(report) {}

  std::vector<YamlEvent> events;
  int documents = 0;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents == 1) return;
    if (!text_.at(static_cast<size_t>(std::max(mark.pos, 0))).starts_with("---")) {
      YamlMistake mistake = find_yaml_mistake(text_, "end of map not found",
                                              static_cast<size_t>(std::max(mark.pos, 0)));
      report_.error("yaml-syntax", "", text_.place(mistake.offset), std::move(mistake.message))
          .fix(std::move(mistake.help));
      throw Stop();
    }
    report_
        .error("yaml-documents", "", place(mark),
               "a second document starts here; a recipe is one document")
        .fix("remove the line '---', or move this part to its own file");
    throw Stop();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(YamlEvent::Type::null, mark, anchor, "", "");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (++aliases_ > limits_.aliases) {
      report_.error("yaml-limit", "", place(mark),
                    cat("more than ", limits_.aliases, " aliases (*name) in one file"));
      throw Stop();
    }
    add(YamlEvent::Type::alias, mark, anchor, "", "");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    add(YamlEvent::Type::scalar, mark, anchor, tag, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    enter(mark);
    add(YamlEvent::Type::list_begin, mark, anchor, tag, "");
  }
  void OnSequenceEnd() override { leave(YamlEvent::Type::list_end); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    enter(mark);
    add(YamlEvent::Type::map_begin, mark, anchor, tag, "");
  }
  void OnMapEnd() override { leave(YamlEvent::Type::map_end); }

 private:
  Location place(const YAML::Mark& mark) const {
    return text_.place(static_cast<size_t>(std::max(mark.pos, 0)));
  }
  void enter(const YAML::Mark& mark) {
    if (++depth_ <= limits_.depth) return;
    report_.error("yaml-limit", "", place(mark),
                  cat("nested deeper than ", limits_.depth, " levels"));
    throw Stop();
  }
  void leave(YamlEvent::Type type) {
    --depth_;
    add(type, YAML::Mark(), 0, "", "");
  }
  void add(YamlEvent::Type type, const YAML::Mark& mark, YAML::anchor_t anchor,
           const std::string& tag, const std::string& value) {
    if (events.size() >= 3 * limits_.nodes) {
      report_.error("yaml-limit", "", place(mark),
                    cat("more than ", limits_.nodes, " values in one file"));
      throw Stop();
    }
    events.push_back({type, static_cast<size_t>(std::max(mark.pos, 0)), anchor, tag,
                      with_whole_characters(replace_all(value, stand_in_, kMissing))});
  }

  const TextIndex& text_;
  const std::string stand_in_;
  const YamlLimits& limits_;
  Report& report_;
  size_t aliases_ = 0, depth_ = 0;
};

}  // namespace

/// Builds the tree from the events, expanding aliases by replaying the events of their anchor.
class YamlBuilder {
 public:
  YamlBuilder(const std::vector<YamlEvent>& events, const TextIndex& text, const YamlLimits& limits,
              Report& report)
      : events_(events),
        text_(text),
        limits_(limits),
        report_(report),
        is_json_(text.place(0).source && text.place(0).source->name().ends_with(".json")) {
    for (size_t i = 0; i < events.size(); ++i)
      if (events[i].anchor != 0 && events[i].type != YamlEvent::Type::alias)
        anchors_[events[i].anchor] = i;
  }

  Node build() {
    size_t at = 0;
    return node(at, "", 0);
  }

 private:
  /// Reads the node that starts at event `at` and advances `at` past it.
  Node node(size_t& at, const std::string& path, size_t depth) {
    const YamlEvent& event = events_[at];
    if (++nodes_ > limits_.nodes) {
      report_.error("yaml-limit", path, text_.place(event.offset),
                    cat("more than ", limits_.nodes, " values",
                        replaying_ > 0 ? " once the aliases are expanded" : ""));
      throw Stop();
    }
    charge(event, path);
    if (depth > limits_.depth) {
      report_.error("yaml-limit", path, text_.place(event.offset),
                    cat("nested deeper than ", limits_.depth, " levels"));
      throw Stop();
    }
    switch (event.type) {
      case YamlEvent::Type::alias:
        return alias(event, at, path, depth);
      case YamlEvent::Type::list_begin:
        return list(event, at, path, depth);
      case YamlEvent::Type::map_begin:
        return map(event, at, path, depth);
      default:
        return scalar(event, at, path);
    }
  }

  /// Counts the bytes that aliases repeat, since few nodes can hold much text.
  void charge(const YamlEvent& event, const std::string& path) {
    if (replaying_ == 0) return;
    copied_bytes_ += event.value.size();
    if (copied_bytes_ <= limits_.copied_bytes) return;
    report_.error(
        "yaml-limit", path, text_.place(event.offset),
        cat("more than ", limits_.copied_bytes, " bytes of text once the aliases are expanded"));
    throw Stop();
  }

  Node alias(const YamlEvent& event, size_t& at, const std::string& path, size_t depth) {
    size_t target = anchors_.at(event.anchor);
    for (size_t open : open_) {
      if (open != target) continue;
      report_
          .error("yaml-cycle", path, text_.place(event.offset),
                 "an alias inside the value that it refers to")
          .note("the anchor is at " + text_.place(events_[target].offset).text());
      throw Stop();
    }
    ++at;
    ++replaying_;
    Node out = node(target, path, depth);
    --replaying_;
    return out;
  }

  Node scalar(const YamlEvent& event, size_t& at, const std::string& path) {
    ++at;
    Node out;
    out.where_ = text_.place(event.offset);
    out.text_ = event.value;
    if (event.type == YamlEvent::Type::null) {
      // The parser reports "null" both for an empty value and for a written one; only the latter
      // has a text.
      for (std::string_view word : {"~", "null", "Null", "NULL"})
        if (text_.at(event.offset).starts_with(word)) out.text_ = word;
    } else if (event.tag == "!" || event.tag == kStringTag) {
      out.kind_ = NodeKind::string;
      out.quoted_ = true;
      out.verbatim_ = is_json_;  // in JSON, all texts are in quotes: "10%", "2k"
    } else {
      out.kind_ = resolve_scalar(event.value);
      check_tag(event, out.kind_, path);
    }
    if (event.value.find('\0') != std::string::npos)
      report_.error("yaml-encoding", path, out.where_, "a string contains a NUL character");
    return out;
  }

  void check_tag(const YamlEvent& event, NodeKind kind, const std::string& path) {
    constexpr std::string_view kCore = "tag:yaml.org,2002:";
    std::string_view tag = event.tag;
    if (tag.empty() || tag == "?" || tag == "!") return;
    std::string_view name = tag.starts_with(kCore) ? tag.substr(kCore.size()) : "";
    bool number = kind == NodeKind::integer || kind == NodeKind::number;
    bool fits = (name == "null" && kind == NodeKind::null) ||
                (name == "bool" && kind == NodeKind::boolean) ||
                (name == "int" && kind == NodeKind::integer) || (name == "float" && number) ||
                (name == "seq" && kind == NodeKind::list) ||
                (name == "map" && kind == NodeKind::map);
    if (fits) return;
    std::string shown = name.empty() ? "!" + std::string(tag.substr(tag.starts_with('!') ? 1 : 0))
                                     : "!!" + std::string(name);
    bool known = name == "null" || name == "bool" || name == "int" || name == "float" ||
                 name == "seq" || name == "map";
    report_
        .error("yaml-tag", path, text_.place(event.offset),
               known ? cat("the tag ", shown, " does not fit ", describe(kind))
                     : cat("unknown tag ", shown))
        .fix("remove the tag: a setting's type comes from its schema");
  }

  Node list(const YamlEvent& event, size_t& at, const std::string& path, size_t depth) {
    Node out = Node::list();
    out.where_ = text_.place(event.offset);
    check_tag(event, NodeKind::list, path);
    open_.push_back(at++);
    while (events_[at].type != YamlEvent::Type::list_end)
      out.items_.push_back(node(at, join_path(path, std::to_string(out.items_.size())), depth + 1));
    ++at;
    open_.pop_back();
    return out;
  }

  Node map(const YamlEvent& event, size_t& at, const std::string& path, size_t depth) {
    Node out = Node::map();
    out.where_ = text_.place(event.offset);
    check_tag(event, NodeKind::map, path);
    open_.push_back(at++);
    std::unordered_map<std::string, size_t> seen;
    while (events_[at].type != YamlEvent::Type::map_end) {
      Node::Entry entry;
      bool usable = key(at, path, depth + 1, entry);
      std::string child = join_path(path, entry.key);
      entry.value = node(at, child, depth + 1);
      if (entry.value.is_null() && entry.value.text_.empty()) entry.value.where_ = entry.key_where;
      if (!usable) continue;
      auto [known, fresh] = seen.emplace(entry.key, out.entries_.size());
      if (fresh) {
        out.entries_.push_back(std::move(entry));
        continue;
      }
      // {split: 90,5,5} has a key 5 twice; it is reported once, as an unknown setting.
      if (entry.value.is_null() && resolve_scalar(entry.key) == NodeKind::integer) continue;
      report_.error("yaml-duplicate-key", child, entry.key_where, "this key appears twice")
          .note("the first one is at " + out.entries_[known->second].key_where.text())
          .fix("keep one of the two");
    }
    ++at;
    open_.pop_back();
    return out;
  }

  /// Reads a key; reports an invalid one and returns false.
  bool key(size_t& at, const std::string& path, size_t depth, Node::Entry& entry) {
    const YamlEvent& event = events_[at];
    charge(event, path);
    entry.key_where = text_.place(event.offset);
    bool is_scalar = event.type == YamlEvent::Type::scalar;
    bool quoted = event.tag == "!" || event.tag == kStringTag;
    std::string fault;
    if (event.type == YamlEvent::Type::null)
      fault = "an empty key";
    else if (!is_scalar)
      fault = event.type == YamlEvent::Type::alias ? "an alias as a key" : "a list or map as a key";
    else if (event.value.size() > limits_.key_bytes)
      fault = cat("a key longer than ", limits_.key_bytes, " bytes");
    else if (event.value == "<<" && !quoted)
      fault = "the merge key <<";
    else if (event.value.find('\0') != std::string::npos)
      fault = "a NUL character in a key";
    if (is_scalar) entry.key = event.value.substr(0, limits_.key_bytes);
    if (is_scalar && !quoted && event.tag != "?" && !event.tag.empty()) fault = "a tag on a key";
    if (!fault.empty()) {
      auto& diagnostic = report_.error(entry.key == "<<" ? "yaml-merge-key" : "yaml-key", path,
                                       entry.key_where, fault + " is not supported");
      if (entry.key == "<<")
        diagnostic.fix(
            "write the settings out, or take them from another file through 'defaults:'");
      else if (event.type == YamlEvent::Type::map_begin && event.offset > 0 &&
               text_.text().substr(event.offset - 1).starts_with("{{"))
        diagnostic.fix(
            "{{ … }} is template syntax: write ${section.key} for the value of another setting, or "
            "a single '{'");
    }
    if (is_scalar || event.type == YamlEvent::Type::null)
      ++at;
    else
      node(at, path, depth);
    return fault.empty();
  }

  const std::vector<YamlEvent>& events_;
  const TextIndex& text_;
  const YamlLimits& limits_;
  Report& report_;
  const bool is_json_;
  std::unordered_map<YAML::anchor_t, size_t> anchors_;
  std::vector<size_t> open_;  // events of the lists and maps being built, outermost first
  size_t nodes_ = 0, copied_bytes_ = 0;
  int replaying_ = 0;
};

namespace {

/// Reports a quote that is still open at the end of the text, which the parser accepts.
bool check_last_quote(const TextIndex& text, const std::vector<YamlEvent>& events, Report& report) {
  for (auto it = events.rbegin(); it != events.rend(); ++it) {
    if (it->type != YamlEvent::Type::scalar || it->tag != "!") continue;
    if (text.quoted_end(it->offset) <= text.text().size()) return true;
    report.error("yaml-syntax", "", text.place(it->offset), "a quote that is not closed")
        .fix("add the closing quote");
    return false;
  }
  return true;
}

/// Refuses notation of other languages in unquoted strings, where it would silently become part of
/// the value.
bool check_notation(const TextIndex& text, const std::vector<YamlEvent>& events, Report& report) {
  constexpr size_t kMost = 20;
  size_t found = 0;
  for (const auto& event : events) {
    if (event.type != YamlEvent::Type::scalar || event.tag == "!" || event.tag == kStringTag ||
        found == kMost)
      continue;
    auto mistake = foreign_notation(event.value);
    if (!mistake) continue;
    ++found;
    // The value's lines are folded, so after the first line its offsets differ from those of the
    // text.
    size_t next = mistake->offset;
    next_character(event.value, next);
    const size_t at =
        text.text().find(event.value.substr(mistake->offset, next - mistake->offset), event.offset);
    report
        .error("yaml-syntax", "", text.place(at == std::string_view::npos ? event.offset : at),
               std::move(mistake->message))
        .fix(std::move(mistake->help));
  }
  return found == 0;
}

/// Refuses deceptive characters, except inside quoted strings.
bool check_deceptive(const TextIndex& text, const std::vector<YamlEvent>& events, Report& report) {
  auto found = text.deceptive_offsets();
  if (found.empty()) return true;
  std::vector<std::pair<size_t, size_t>> strings;
  for (const auto& event : events)
    if (event.type == YamlEvent::Type::scalar && event.tag == "!")
      strings.emplace_back(event.offset, text.quoted_end(event.offset));
  bool clean = true;
  for (size_t offset : found) {
    auto after = std::upper_bound(strings.begin(), strings.end(), std::pair(offset, size_t{0}));
    if (after != strings.begin() && offset < std::prev(after)->second) continue;
    size_t next = offset;
    next_character(text.text(), next);
    report
        .error("yaml-encoding", "", text.place(offset),
               cat("the invisible character ", visible(text.text().substr(offset, next - offset)),
                   " outside a quoted string"))
        .fix("remove it, or write it as an escape in double quotes");
    clean = false;
    if (report.errors() >= 20) break;
  }
  return clean;
}

}  // namespace

std::optional<Node> load_yaml(SourcePtr source, Report& report, const YamlLimits& limits) {
  size_t before = report.errors();
  if (source->text().size() > limits.bytes) {
    report.error("yaml-limit", "", {source, 0, 0},
                 cat("is ", human_bytes(source->text().size()), " long; a recipe may have ",
                     human_bytes(limits.bytes)));
    return std::nullopt;
  }
  TextIndex text(source);
  if (!text.check_characters(report)) return std::nullopt;
  const std::string missing = stand_in(text.text());
  EventList list(text, missing, limits, report);
  try {
    std::istringstream stream(replace_all(std::string(text.text()), kMissing, missing));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(list)) {
    }
    if (!check_last_quote(text, list.events, report) ||
        !check_deceptive(text, list.events, report) || !check_notation(text, list.events, report))
      return std::nullopt;
    if (list.events.empty()) {
      Node empty;
      empty.set_location({source, 1, 1});
      return empty;
    }
    Node root = YamlBuilder(list.events, text, limits, report).build();
    if (report.errors() > before) return std::nullopt;
    return root;
  } catch (const Stop&) {
    return std::nullopt;
  } catch (const YAML::Exception& fault) {
    const size_t offset =
        std::min(static_cast<size_t>(std::max(fault.mark.pos, 0)), text.text().size());
    YamlMistake mistake = find_yaml_mistake(text, fault.msg, offset);
    report.error("yaml-syntax", "", text.place(mistake.offset), std::move(mistake.message))
        .fix(std::move(mistake.help));
    return std::nullopt;
  }
}

std::optional<Node> load_yaml_file(const std::filesystem::path& path, Report& report,
                                   const YamlLimits& limits) {
  std::string name = path.string(), content;
  try {
    content = read_file(path, limits.bytes);
  } catch (const Error& fault) {
    report
        .error("file", "", {std::make_shared<Source>(SourceKind::file, name, ""), 0, 0},
               fault.message())
        .fix(fault.hint());
    return std::nullopt;
  }
  return load_yaml(std::make_shared<Source>(SourceKind::file, name, std::move(content)), report,
                   limits);
}

Node parse_yaml(std::string text, std::string name) {
  Report report;
  auto node = load_yaml(
      std::make_shared<Source>(SourceKind::file, std::move(name), std::move(text)), report);
  report.throw_if_errors();
  return std::move(*node);
}

}  // namespace mtrain
