#include "mtrain/config/schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "mtrain/base/text.h"
#include "mtrain/config/value.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_mistakes.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr size_t kMaxSuggestions =
    64;  // faults that get a suggestion; the search for one costs far more than the report

std::string limit_text(double value) {
  bool whole = std::abs(value) < 1e15 && std::trunc(value) == value;
  return whole ? std::to_string(static_cast<int64_t>(value)) : shortest(value);
}

SourcePtr default_source(const std::string& owner) {
  return std::make_shared<Source>(SourceKind::built_in,
                                  cat("default of ", owner.empty() ? "the schema" : owner), "");
}

Node unplaced_default(const FieldSpec& spec) {
  if (spec.default_value == "[]") return Node::list();  // most lists; each check reads them
  bool simple = resolve_scalar(spec.default_value) != NodeKind::string ||
                write_string(spec.default_value) == spec.default_value;
  return simple ? Node::plain(spec.default_value)
                : parse_yaml(spec.default_value, "default of " + spec.path);
}

/// The command line comes after all files.
int usual_order(const Location& where) {
  return where && where.source->kind() == SourceKind::command_line ? 1 : 0;
}

/// A setting and its owners. Several owners may define one setting; each checks it by its own spec.
struct Slot {
  struct Owner {
    size_t schema;
    const FieldSpec* spec;
  };
  std::vector<Owner> owners;
  const Node* given = nullptr;
  std::string given_as;            // the full path under which it was written
  const Node* shadowed = nullptr;  // the value that an override by another name replaced
};

class SectionReader {
 public:
  SectionReader(const std::vector<const Schema*>& schemas, Report& report,
                const ValidateOptions& options)
      : schemas_(schemas), report_(report), options_(options) {
    for (size_t s = 0; s < schemas.size(); ++s)
      for (const auto& spec : schemas[s]->fields) declare(s, spec);
  }

  std::vector<Node> read(const Node& section) {
    if (section.is_map())
      walk(section, "");
    else if (!section.is_null())
      report_
          .error("wrong-type", options_.path, section.loc(),
                 cat("wanted a map of settings, got ", describe(section.kind())))
          .fix(map_instead_of(section));
    resolve_alternatives();
    std::vector<Node> out;
    bool usable = section.is_map() || section.is_null();
    for (size_t s = 0; s < schemas_.size(); ++s) {
      out.push_back(Node::map().set_location(section.loc()).with_base_path(options_.path));
      if (!usable) continue;
      for (const auto& spec : schemas_[s]->fields) place(out.back(), spec, section);
    }
    return out;
  }

 private:
  void declare(size_t schema, const FieldSpec& spec) {
    slots_[spec.path].owners.push_back({schema, &spec});
    declare_parents(spec.path);
    size_t dot = spec.path.rfind('.');
    for (const auto& old : spec.renamed_from) {
      renamed_.emplace(old, spec.path);
      declare_parents(old);
      if (dot != std::string::npos) renamed_.emplace(spec.path.substr(0, dot + 1) + old, spec.path);
    }
  }

  void declare_parents(std::string path) {
    for (size_t dot; (dot = path.rfind('.')) != std::string::npos;) {
      path.resize(dot);
      sections_[path] = true;
    }
  }

  static std::string map_instead_of(const Node& given) {
    if (given.is_list()) return "write its settings as lines `key: value`, without '-' or '[ ]'";
    std::string entry =
        given.is(NodeKind::string) && !given.quoted() ? meant_entry(given.as_text()) : "";
    return entry.empty()
               ? "write its settings as lines `key: value`, indented below it"
               : cat("write `", entry, "`: a key and its value are separated by ':' and a space");
  }

  std::string full(const std::string& path) const {
    return options_.path.empty() ? path : path.empty() ? options_.path : options_.path + "." + path;
  }

  void walk(const Node& map, const std::string& path) {
    for (const auto& entry : map.entries()) {
      std::string child = join_path(path, entry.key);
      auto slot = slots_.find(child);
      if (slot != slots_.end()) {
        give(slot->second, entry, child);
      } else if (sections_.count(child)) {
        if (entry.value.is_map())
          walk(entry.value, child);
        else if (!entry.value.is_null())
          report_
              .error("wrong-type", full(child), entry.value.loc(),
                     cat("wanted a map of settings, got ", describe(entry.value.kind()), " (",
                         brief(entry.value), ")"))
              .fix(map_instead_of(entry.value));
      } else if (auto old = renamed_.find(child); old != renamed_.end()) {
        if (!give(slots_.at(old->second), entry, child)) continue;
        report_
            .warning("renamed", full(child), entry.key_where,
                     cat("is another name for ", full(old->second)))
            .fix(cat("write ", full(old->second)));
      } else if (!options_.allow_unknown) {
        unknown(entry, child, map);
      }
    }
  }

  /// False when the setting is given twice in one source. The value that is merged later wins,
  /// whichever of the setting's names it uses.
  bool give(Slot& slot, const Node::Entry& entry, const std::string& path) {
    if (!slot.given) {
      slot.given = &entry.value;
      slot.given_as = path;
      return true;
    }
    int before = order_of(*slot.given), now = order_of(entry.value);
    if (before != now) {
      slot.shadowed = now > before ? slot.given : &entry.value;
      if (now < before) return true;
      slot.given = &entry.value;
      slot.given_as = path;
      return true;
    }
    report_
        .error("conflict", full(path), entry.key_where,
               cat("sets the same setting as ", full(slot.given_as)))
        .note(cat(full(slot.given_as), " is at ", slot.given->loc().text()))
        .fix("keep one of the two");
    return false;
  }

  /// The numbers with ',' between them that a source has at a place: "90,10,0". The tree has a
  /// repeated number once.
  static std::string numbers_at(const Location& place) {
    std::string_view rest = place.source->line(place.line);
    for (int column = 1; column < place.column && !rest.empty(); ++column) {
      rest.remove_prefix(1);
      while (!rest.empty() && (static_cast<unsigned char>(rest[0]) & 0xC0) == 0x80)
        rest.remove_prefix(1);  // the other bytes of the character
    }
    std::string out(rest.substr(0, rest.find_first_not_of("0123456789., ")));
    std::erase(out, ' ');
    return out;
  }

  /// For `{split: 90,10,0}`, where YAML reads each ',' as the start of a setting: the value in
  /// quotes, when the previous setting is a string.
  std::string fix_of_digits(const Node::Entry& entry, const std::string& path,
                            const Node& map) const {
    const std::string parent = path.substr(0, path.size() - entry.key.size());
    const Node* value = nullptr;
    const FieldSpec* before = nullptr;
    for (const Node::Entry& other : map.entries()) {
      if (&other == &entry) break;
      const bool digits =
          other.value.is_null() && other.key.find_first_not_of("0123456789") == std::string::npos;
      if (digits) continue;
      const auto slot = slots_.find(parent + other.key);
      before = slot == slots_.end() ? nullptr : slot->second.owners.front().spec;
      value = &other.value;
    }
    if (!before || before->type != FieldType::string)
      return "in { } a ',' begins the next setting: write '.' as the decimal point, and no "
             "separators between groups of digits";
    return cat("in { } a ',' begins the next setting: write the text in quotes, ", before->path,
               ": \"", numbers_at(value->loc()), "\"");
  }

  void unknown(const Node::Entry& entry, const std::string& path, const Node& map) {
    // optimizr: {lr: 1} means optimizer.lr: follow single keys down to what was meant.
    std::string meant = full(path);
    for (const Node* at = &entry.value; at->is_map() && at->size() == 1;
         at = &at->entries()[0].value)
      meant = join_path(meant, at->entries()[0].key);
    const Location& value =
        entry.value.loc();  // for an override, this differs from the location of the key
    const bool overridden =
        value && value.source->kind() == SourceKind::command_line && !entry.value.is_map();
    auto& fault = report_.error("unknown-key", full(path), overridden ? value : entry.key_where,
                                "no such setting");
    if (report_.errors() > kMaxSuggestions) return;
    if (std::string entry_text = entry.value.is_null() ? meant_entry(entry.key) : "";
        !entry_text.empty()) {
      fault.fix(
          cat("write `", entry_text, "`: a key and its value are separated by ':' and a space"));
      return;
    }
    if (entry.value.is_null() &&
        entry.key.find_first_not_of("0123456789") == std::string::npos) {  // {lr: 0,001}
      fault.fix(fix_of_digits(entry, path, map));
      return;
    }
    std::string unescaped = path;
    std::erase(unescaped, '\\');
    if (slots_.count(unescaped) || sections_.count(unescaped)) {
      fault.fix("a dot in a YAML key is part of its name: write the sections as nested maps");
      return;
    }
    std::string help = names().help(meant);
    if (help.empty() && meant != full(path)) help = names().help(full(path));
    fault.fix(std::move(help));
  }

  const KeyIndex& names() {
    if (options_.known) return *options_.known;
    if (!own_built_)
      for (const auto* schema : schemas_) own_.add_schema(*schema, options_.path);
    own_built_ = true;
    return own_;
  }

  int order_of(const Node& node) const {
    return options_.order ? options_.order(node.loc()) : usual_order(node.loc());
  }

  /// Of two settings that are alternatives, the one that was merged later wins; both in one source
  /// are a fault.
  void resolve_alternatives() {
    for (auto& [path, slot] : slots_) {
      const std::string& other = slot.owners.front().spec->alternative;
      auto found = slots_.find(other);
      if (found == slots_.end() || path > other) continue;  // each pair once
      Slot& second = found->second;
      if (!slot.given || !second.given) continue;
      int a = order_of(*slot.given), b = order_of(*second.given);
      if (a == b)
        report_
            .error("conflict", full(path), slot.given->loc(),
                   cat("sets the same as ", full(other), " in another way"))
            .note(cat(full(other), " is at ", second.given->loc().text()))
            .fix("keep one of the two");
      else
        (a < b ? slot : second).given = nullptr;
    }
  }

  /// True when an absent setting is omitted because its alternative is given.
  bool stands_aside(const FieldSpec& spec) const {
    if (spec.alternative.empty()) return false;
    auto other = slots_.find(spec.alternative);
    return !spec.required || (other != slots_.end() && other->second.given);
  }

  /// Adds a setting, read by one owner's spec, to the owner's map.
  void place(Node& out, const FieldSpec& spec, const Node& section) {
    const Slot& slot = slots_.at(spec.path);
    Node value;
    if (!slot.given && stands_aside(spec)) return;
    if (slot.given) {
      // Two owners with the same spec would report the same fault twice.
      Report faults;
      auto read = read_value(*slot.given, spec, full(slot.given_as), faults);
      bool first_owner = slot.owners.front().spec == &spec;
      if (first_owner || reported_.count(spec.path) == 0) {
        if (!faults.ok()) reported_[spec.path] = true;
        report_.add(std::move(faults));
      }
      if (!read) return;
      value = spec.type == FieldType::tree ? *slot.given : write_value(*read, spec);
      value.set_location(slot.given->loc()).adopt_provenance(*slot.given);
      for (size_t i = 0; value.is_list() && i < value.size() && value.size() == slot.given->size();
           ++i)
        value.items()[i]
            .set_location(slot.given->items()[i].loc())
            .adopt_provenance(slot.given->items()[i]);
      if (slot.shadowed) value.shadow(*slot.shadowed);
    } else if (spec.required) {
      if (&spec == slot.owners.front().spec) missing(spec, section);
      return;
    } else {
      const FieldSpec* source = &spec;
      // The default of the most specific owner applies to all.
      if (!slot.owners.back().spec->default_value.empty()) source = slot.owners.back().spec;
      const std::string& owner = schemas_[slot.owners.back().schema]->name;
      bool component = !options_.path.empty() && owner != options_.path;
      value = default_node(*source, component ? options_.path + "/" + owner : owner);
    }
    if (spec.path.find('.') == std::string::npos)
      out.append(spec.path, value.loc(), std::move(value));
    else
      out.set(spec.path, std::move(value));
  }

  Node default_node(const FieldSpec& spec, const std::string& owner) {
    Node value = unplaced_default(spec);
    auto& source = defaults_[owner];
    if (!source) source = default_source(owner);
    return value.set_location({source, 0, 0});
  }

  void missing(const FieldSpec& spec, const Node& section) {
    std::string unless =
        spec.alternative.empty() ? "" : cat(" unless ", full(spec.alternative), " is set");
    auto& fault = report_.error("missing", full(spec.path), {},
                                cat("is required (", describe(spec), ")", unless));
    if (!spec.doc.empty()) fault.note(spec.doc);
    if (section.loc() && section.is_map()) fault.note("the section is at " + section.loc().text());
    if (!spec.example.empty()) fault.fix(cat("e.g. ", full(spec.path), "=", spec.example));
  }

  const std::vector<const Schema*>& schemas_;
  Report& report_;
  const ValidateOptions& options_;
  std::unordered_map<std::string, Slot> slots_;
  std::unordered_map<std::string, bool> sections_, reported_;
  std::unordered_map<std::string, std::string> renamed_;
  std::map<std::string, SourcePtr> defaults_;
  KeyIndex own_;
  bool own_built_ = false;
};

}  // namespace

std::vector<Node> validate(const Node& section, const std::vector<const Schema*>& schemas,
                           Report& report, const ValidateOptions& options) {
  return SectionReader(schemas, report, options).read(section);
}

Node validate(const Node& section, const Schema& schema, Report& report,
              const ValidateOptions& options) {
  return std::move(validate(section, std::vector<const Schema*>{&schema}, report, options)[0]);
}

Node default_value(const FieldSpec& spec, const std::string& owner) {
  return unplaced_default(spec).set_location({default_source(owner), 0, 0});
}

const char* name(FieldType type) {
  switch (type) {
    case FieldType::boolean:
      return "boolean";
    case FieldType::integer:
      return "integer";
    case FieldType::number:
      return "number";
    case FieldType::string:
      return "string";
    case FieldType::integer_list:
      return "list of integers";
    case FieldType::number_list:
      return "list of numbers";
    case FieldType::string_list:
      return "list of strings";
    case FieldType::tree:
      return "any value";
  }
  return "?";
}

const char* name(Fact fact) {
  switch (fact) {
    case Fact::none:
      break;
    case Fact::layers:
      return "layers";
    case Fact::hidden_size:
      return "hidden_size";
    case Fact::heads:
      return "heads";
    case Fact::kv_heads:
      return "kv_heads";
    case Fact::head_dim:
      return "head_dim";
    case Fact::ffn_hidden_size:
      return "ffn_hidden_size";
    case Fact::experts:
      return "experts";
    case Fact::mtp_layers:
      return "mtp_layers";
  }
  return "none";
}

const char* name(ResumeClass resume) {
  switch (resume) {
    case ResumeClass::safe:
      return "safe";
    case ResumeClass::start:
      return "start";
    case ResumeClass::coming_steps:
      return "coming_steps";
    case ResumeClass::changes_result:
      return "changes_result";
    case ResumeClass::data:
      return "data";
    case ResumeClass::impossible:
      return "impossible";
  }
  return "?";
}

std::string choices_text(const FieldSpec& spec) {
  std::vector<std::string> out;
  for (const auto& choice : spec.choices) out.push_back(choice.empty() ? "\"\"" : choice);
  return join(out, ", ");
}

std::string describe(const FieldSpec& spec) {
  std::string out = name(spec.type);
  if (spec.list_size >= 0) out += cat(" of length ", spec.list_size);
  std::vector<std::string> limits;
  if (spec.min) limits.push_back(cat(spec.exclusive_min ? "> " : ">= ", limit_text(*spec.min)));
  if (spec.max) limits.push_back(cat(spec.exclusive_max ? "< " : "<= ", limit_text(*spec.max)));
  if (!limits.empty()) out += " " + join(limits, " and ");
  if (!spec.choices.empty()) out += ", one of " + choices_text(spec);
  if (!spec.unit.empty()) out += " (" + spec.unit + ")";
  if (!spec.derived.empty()) out += ", computed from " + spec.derived;
  if (!spec.share_of.empty()) out += cat(" or a share of ", spec.share_of, " such as 5%");
  if (spec.nullable && spec.type != FieldType::tree) out += " or null";
  return out;
}

}  // namespace mtrain
