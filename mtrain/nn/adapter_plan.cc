// Which weights have adapters, and of which size: AdapterPlan.
#include <algorithm>
#include <array>
#include <cmath>

#include "mtrain/base/text.h"
#include "mtrain/nn/adapter.h"
#include "mtrain/nn/name_pattern.h"

namespace mtrain {

std::string AdapterPlan::list_name(List list) {
  return list == &AdapterOptions::targets       ? "targets"
         : list == &AdapterOptions::exclude     ? "exclude"
         : list == &AdapterOptions::feedforward ? "feedforward"
                                                : "train";
}

bool AdapterPlan::matches(List list, const std::string& name, const std::string& path) {
  bool any = false;
  for (const std::string& pattern : options_.*list)
    if (name_match(pattern, name, path)) matched_[list_name(list)].insert(pattern), any = true;
  return any;
}

std::vector<size_t> AdapterPlan::matrices_of(const std::string& weight,
                                             const std::vector<LogicalMatrix>& matrices) {
  const std::string name = within_block(weight);
  std::vector<size_t> out;
  candidates_.insert(name);
  const bool whole = matches(&AdapterOptions::targets, name, weight),
             none = matches(&AdapterOptions::exclude, name, weight);
  for (size_t m = 0; m < matrices.size(); ++m) {
    const std::string last = matrices[m].name.empty() ? "" : cat(".", matrices[m].name),
                      own = name + last, path = weight + last;
    candidates_.insert(own);
    const bool chosen = matches(&AdapterOptions::targets, own, path) || whole,
               excluded = matches(&AdapterOptions::exclude, own, path) || none;
    if (chosen && !excluded) out.push_back(m);
  }
  num_adapters_ += static_cast<int64_t>(out.size());
  return out;
}

double AdapterPlan::number_of(const char* list, const std::vector<AdapterNumber>& numbers,
                              const std::string& weight, const std::string& matrix,
                              double otherwise) {
  const std::string name = within_block(weight), last = matrix.empty() ? "" : cat(".", matrix);
  const AdapterNumber* first = nullptr;
  for (const AdapterNumber& one : numbers) {
    if (!name_match(one.pattern, name, weight) &&
        !name_match(one.pattern, name + last, weight + last))
      continue;
    matched_[list].insert(one.pattern);
    if (!first) first = &one;
  }
  return first ? first->number : otherwise;
}

AdapterSize AdapterPlan::size_of(const std::string& weight, const std::string& matrix) {
  AdapterSize out;
  out.rank = static_cast<int64_t>(
      number_of("ranks", options_.ranks, weight, matrix, static_cast<double>(options_.rank)));
  out.alpha = number_of("alphas", options_.alphas, weight, matrix, options_.alpha);
  const auto rank = static_cast<double>(out.rank);
  out.scale = out.alpha / (options_.rslora ? std::sqrt(rank) : rank);
  return out;
}

bool AdapterPlan::scales_input(const std::string& weight,
                               const std::vector<LogicalMatrix>& matrices) {
  const std::string name = within_block(weight);
  if (matches(&AdapterOptions::feedforward, name, weight)) return true;
  size_t some = 0;
  for (const LogicalMatrix& m : matrices)
    if (!m.name.empty())
      some +=
          matches(&AdapterOptions::feedforward, cat(name, ".", m.name), cat(weight, ".", m.name));
  MT_USER_CHECK(some == 0 || some == matrices.size(), ErrorClass::config,
                cat("peft.feedforward: the matrices of ", weight,
                    " share their inputs, and only some of them are in peft.feedforward"),
                cat("name the whole weight, ", name,
                    ", in peft.feedforward and peft.targets, or leave it out of peft.feedforward"));
  return some > 0;
}

bool AdapterPlan::adapts_experts(const std::string& weight) {
  const std::string name = within_block(weight);
  candidates_.insert(name);
  bool chosen = false;
  for (const std::string& pattern : options_.targets)
    if (pattern.find("experts") != std::string::npos && name_match(pattern, name, weight))
      matched_["targets"].insert(pattern), chosen = true;
  const bool excluded = matches(&AdapterOptions::exclude, name, weight);
  num_adapters_ += chosen && !excluded ? 1 : 0;
  return chosen && !excluded;
}

bool AdapterPlan::trains(const std::string& parameter) {
  return is_adapter(parameter) || matches(&AdapterOptions::train, parameter, parameter);
}

bool AdapterPlan::is_adapter(std::string_view parameter) {
  return std::ranges::any_of(std::array{"lora_a", "lora_b", "lora_magnitude", "ia3_l"},
                             [&](const char* name) { return parameter.ends_with(cat(".", name)); });
}

std::vector<AdapterPlan::Unmatched> AdapterPlan::unmatched() const {
  std::vector<Unmatched> out;
  for (List list : {&AdapterOptions::targets, &AdapterOptions::exclude,
                    &AdapterOptions::feedforward, &AdapterOptions::train}) {
    const auto found = matched_.find(list_name(list));
    for (const std::string& pattern : options_.*list)
      if (found == matched_.end() || !found->second.contains(pattern))
        out.push_back({list_name(list), pattern});
  }
  for (const auto& [list, numbers] :
       {std::pair("ranks", &options_.ranks), std::pair("alphas", &options_.alphas)}) {
    const auto found = matched_.find(list);
    for (const AdapterNumber& one : *numbers)
      if (found == matched_.end() || !found->second.contains(one.pattern))
        out.push_back({list, one.pattern});
  }
  return out;
}

}  // namespace mtrain
