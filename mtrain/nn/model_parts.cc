#include "mtrain/nn/model_parts.h"

#include <algorithm>
#include <cctype>

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
    PartId id{static_cast<int16_t>(p.stage), 0};
    if (before && before->stage == p.stage) {
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
  if (head && !own_matrix && table && *table != last_id) last.also_reads = table;
  return parts;
}

}  // namespace mtrain
