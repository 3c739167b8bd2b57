#include "mtrain/nn/model_parts.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

/// "3" of "layers.3"; the first name of a parameter outside of blocks.
std::string part_name(std::string_view parameter) {
  std::string_view block = block_of(parameter);
  return std::string(block.empty() ? parameter.substr(0, parameter.find('.'))
                                   : block.substr(block.rfind('.') + 1));
}

}  // namespace

std::string_view block_of(std::string_view parameter) {
  for (size_t begin = 0; begin < parameter.size();) {
    size_t end = std::min(parameter.find('.', begin), parameter.size());
    std::string_view part = parameter.substr(begin, end - begin);
    bool number = !part.empty() && std::all_of(part.begin(), part.end(),
                                               [](unsigned char c) { return std::isdigit(c); });
    if (number) return parameter.substr(0, end);
    begin = end + 1;
  }
  return {};
}

std::vector<PartId> parts_of(const std::deque<Parameter>& parameters) {
  std::vector<PartId> parts;
  const Parameter* before = nullptr;
  for (const Parameter& p : parameters) {
    PartId id{static_cast<int16_t>(p.stage), std::max<int16_t>(p.part, 0)};
    if (p.part < 0 && before && before->stage == p.stage) {
      bool same = block_of(p.name) == block_of(before->name);
      id.index = static_cast<int16_t>(parts.back().index + (same ? 0 : 1));
    }
    parts.push_back(id);
    before = &p;
  }
  return parts;
}

StageParts stage_parts(const std::deque<Parameter>& parameters, int64_t stage, bool embedding,
                       bool head, int64_t expert_ranks) {
  StageParts parts;
  std::vector<PartId> ids = parts_of(parameters);
  std::optional<PartId> table, first_table;  // of the stage itself, and of any stage of the rank
  bool own_matrix = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Parameter& p = parameters[i];
    bool is_table = p.role == ParamRole::embedding;
    if (is_table && !first_table) first_table = ids[i];
    if (p.stage != stage) continue;
    if (is_table && !table) table = ids[i];
    own_matrix |= p.role == ParamRole::head;
    if (static_cast<size_t>(ids[i].index) == parts.size())
      parts.push_back({.name = part_name(p.name), .block = !block_of(p.name).empty()});
    parts.back().exchanges |= expert_ranks > 1 && p.role == ParamRole::expert_matrix;
  }
  if (parts.empty()) return parts;
  ModelPart &first = parts.front(), &last = parts.back();
  if (!first.block && embedding) first.name = "embed";
  if (!last.block && head && (parts.size() > 1 || !embedding)) last.name = "head";
  if (!first.block && head && !embedding && parts.size() > 1)
    first.name = "table", first.computes = false;
  if (!table) table = first_table;
  PartId last_id{static_cast<int16_t>(stage), static_cast<int16_t>(parts.size() - 1)};
  if (head && !own_matrix && table && *table != last_id) last.also_reads = {*table};
  return parts;
}

namespace {

/// True for the parameter or scope of this path itself, and for all below it.
bool is_below(std::string_view name, std::string_view path) {
  return name.starts_with(path) && (name.size() == path.size() || name[path.size()] == '.');
}

bool reads(const ComputedPart& part, const Parameter& p) {
  return is_below(p.name, part.scope) ||
         std::any_of(part.reads.begin(), part.reads.end(),
                     [&](const std::string& path) { return is_below(p.name, path); });
}

void require_parameters(const std::deque<Parameter>& parameters, const ComputedPart& part) {
  constexpr const char* kHint =
      "correct Model::parts() in the plugin of the model: it lists the parts of one pipeline "
      "stage, with the paths of their scopes and of what else they read";
  auto any_of = [&](auto&& matches) {
    return std::any_of(parameters.begin(), parameters.end(), matches);
  };
  for (const std::string& path : part.reads)
    MT_USER_CHECK(any_of([&](const Parameter& p) { return is_below(p.name, path); }),
                  ErrorClass::plugin,
                  cat("the model declares that its part '", part.scope, "' reads '", path,
                      "', but there are no parameters of this name or below it"),
                  kHint);
  MT_USER_CHECK(any_of([&](const Parameter& p) { return reads(part, p); }), ErrorClass::plugin,
                cat("the model declares a part '", part.scope,
                    "', but there are no parameters below this path"),
                kHint);
}

/// Parameters of one stage that the same declared parts read.
struct ReadBy {
  std::vector<size_t> readers;  // indices of declared parts, ascending
  std::vector<Parameter*> parameters;
  bool apart() const { return readers.size() != 1; }  // they are a part of their own
};

std::vector<ReadBy> by_readers(std::deque<Parameter>& parameters, int64_t stage,
                               const std::vector<ComputedPart>& declared) {
  std::map<std::vector<size_t>, std::vector<Parameter*>> groups;
  for (Parameter& p : parameters) {
    if (p.stage != stage) continue;
    std::vector<size_t> readers;
    for (size_t i = 0; i < declared.size(); ++i)
      if (reads(declared[i], p)) readers.push_back(i);
    groups[readers].push_back(&p);
  }
  std::vector<ReadBy> out;
  for (auto& [readers, members] : groups) out.push_back({readers, std::move(members)});
  return out;
}

/// "layers.0.attn" of "layers.0.attn.qkv.weight" and "layers.0.attn.out.weight".
std::string common_path(const ReadBy& group) {
  std::string path = group.parameters.front()->name;
  for (const Parameter* p : group.parameters)
    while (!path.empty() && !is_below(p->name, path))
      path.resize(path.find('.') == path.npos ? 0 : path.rfind('.'));
  return !path.empty() ? path : group.readers.empty() ? "unused" : "shared";
}

void add_read(ModelPart& part, PartId id, PartId own) {
  auto& all = part.also_reads;
  if (id != own && std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
}

}  // namespace

StageParts declared_parts(std::deque<Parameter>& parameters, int64_t stage,
                          const std::vector<ComputedPart>& declared, int64_t expert_ranks) {
  for (const ComputedPart& part : declared) require_parameters(parameters, part);
  StageParts parts;
  std::vector<ReadBy> groups = by_readers(parameters, stage, declared);
  for (const ReadBy& group : groups)
    if (group.apart()) parts.push_back({.name = common_path(group), .computes = false});
  const size_t first = parts.size();
  for (const ComputedPart& part : declared) {
    std::string_view block = block_of(part.scope);
    std::string_view name = block.empty() ? std::string_view(part.scope) : block;
    if (!part.auxiliary) name = name.substr(name.rfind('.') + 1);
    parts.push_back({.name = std::string(name),
                     .block = !block.empty(),
                     .owns = false,
                     .auxiliary = part.auxiliary});
  }
  int16_t apart = 0;
  for (const ReadBy& group : groups) {
    const auto index = group.apart() ? apart++ : static_cast<int16_t>(first + group.readers[0]);
    parts[static_cast<size_t>(index)].owns = true;
    for (Parameter* p : group.parameters) p->part = index;
  }
  std::vector<PartId> ids = parts_of(parameters);
  for (size_t i = 0; i < ids.size(); ++i)
    for (size_t d = 0; d < declared.size(); ++d) {
      if (!reads(declared[d], parameters[i])) continue;
      ModelPart& part = parts[first + d];
      add_read(part, ids[i], {static_cast<int16_t>(stage), static_cast<int16_t>(first + d)});
      part.exchanges |= expert_ranks > 1 && parameters[i].role == ParamRole::expert_matrix;
    }
  return parts;
}

}  // namespace mtrain
