#include "mtrain/optim/param_rates.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/nn/model_parts.h"
#include "mtrain/nn/name_pattern.h"

namespace mtrain {
namespace {

constexpr const char* kRoleNames[] = {"other", "matrix", "embedding",     "head",
                                      "norm",  "bias",   "expert_matrix", "router"};

const char* role_name(ParamRole role) { return kRoleNames[static_cast<size_t>(role)]; }

/// "layers.3.attn.qkv" of "layers.3.attn.qkv.weight".
std::string layer_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

/// A pattern matches the name of a parameter, or that of its layer.
bool matches_parameter(const std::string& pattern, const Parameter& p) {
  const bool linear = p.role == ParamRole::matrix || p.role == ParamRole::expert_matrix;
  if (pattern == "all-linear" && !linear) return false;
  const std::string layer = layer_of(p.name);
  return name_match(pattern, within_block(p.name), p.name) ||
         name_match(pattern, within_block(layer), layer);
}

/// A table by token: those of positions and segments keep the rate of the run.
bool is_embedding_or_head(const Parameter& p) {
  return p.role == ParamRole::head ||
         (p.role == ParamRole::embedding && !p.dims.empty() && p.dims[0].name == "vocab");
}

/// Four digits, since factors of depth have many: 0.0001024.
std::string short_rate(double rate) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", rate);
  return text.data();
}

/// The number of a block and the path before it: "layers" and 3 of "layers.3".
std::pair<std::string, int64_t> stack_and_number(std::string_view block) {
  const size_t dot = block.rfind('.');
  const std::string_view digits = dot == std::string_view::npos ? block : block.substr(dot + 1);
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return {std::string(dot == std::string_view::npos ? "" : block.substr(0, dot)), number};
}

}  // namespace

void ParamGroup::bind(Fields& f) {
  f("match", match, "names of parameters").example("'*.norm*'");
  f("role", role, "what parameters are").one_of({std::begin(kRoleNames), std::end(kRoleNames)});
  f("lr", lr, "peak learning rate").min(0).example("1e-4");
  f("lr_scale", lr_scale, "factor of the run's learning rate").min(0).example("0.5");
  f("min_lr", min_lr, "learning rate at the end of the decay").min(0);
  f("weight_decay", weight_decay, "weight decay of all parameters of the group").min(0);
}

std::string ParamGroup::fault() const {
  if (!match && !role) return "the group has neither match nor role, which say its parameters";
  // No parameter has other characters, and names of groups become names of metrics.
  const auto valid = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("._-*?![]").find(c) != std::string_view::npos;
  };
  if (match && (match->empty() || !std::ranges::all_of(*match, valid)))
    return cat("'", printable(*match, 60),
               "' is no pattern of parameter names: these have letters, digits, '.', '_' and '-', "
               "and * matches any characters");
  if (lr && lr_scale) return "lr and lr_scale exclude each other";
  if (!lr && !lr_scale && !min_lr && !weight_decay)
    return "the group changes nothing: set lr, lr_scale, min_lr or weight_decay";
  return {};
}

std::string ParamGroup::name() const {
  return match && role ? cat(*match, " ", *role) : match ? *match : role.value_or("");
}

ParamRates::ParamRates(ParamRateOptions options) : options_(std::move(options)) {
  groups_.push_back({.name = "others", .setting = "optimizer", .peak = options_.lr});
  for (size_t i = 0; i < options_.groups.size(); ++i)
    groups_.push_back(group_of(options_.groups[i], i));
  if (options_.embedding_lr) {
    embedding_ = groups_.size();
    groups_.push_back(embedding_group());
  }
  for (const Group& group : groups_) require_no_rise(group);
}

ParamRates::Group ParamRates::group_of(const ParamGroup& item, size_t index) const {
  const double scale = item.lr_scale.value_or(1);
  return {.name = item.name(),
          .setting = cat("optimizer.groups[", index, "]"),
          .peak = item.lr ? *item.lr : options_.lr * scale,
          .min_lr = item.min_lr,
          .scale = scale,
          .absolute = item.lr.has_value(),
          .own_rate = item.lr || item.lr_scale || item.min_lr,
          .weight_decay = item.weight_decay};
}

ParamRates::Group ParamRates::embedding_group() const {
  return {.name = "embedding_lr",
          .setting = "optimizer.embedding_lr",
          .peak = *options_.embedding_lr,
          .min_lr = options_.embedding_min_lr,
          .absolute = true,
          .own_rate = true};
}

void ParamRates::require_no_rise(const Group& group) const {
  const bool absolute = group.absolute || group.min_lr;
  if (!absolute || options_.schedule.type == "constant") return;
  const double least = group.min_lr.value_or(options_.schedule.min_lr);
  MT_USER_CHECK(least <= group.peak, ErrorClass::config,
                cat(group.setting, ": ", group.min_lr ? "its minimum " : "scheduler.min_lr ",
                    shortest(least), " is above its peak ", shortest(group.peak),
                    ", so the learning rate would rise instead of decaying"),
                &group == (embedding_ ? &groups_[*embedding_] : nullptr)
                    ? cat("optimizer.embedding_min_lr=", shortest(group.peak / 10))
                    : cat("give the group a smaller min_lr, such as ", shortest(group.peak / 10)));
}

bool ParamRates::is_in(size_t group, const Parameter& p) const {
  if (embedding_ == group) return is_embedding_or_head(p);
  const ParamGroup& item = options_.groups[group - 1];
  return (!item.role || *item.role == role_name(p.role)) &&
         (!item.match || matches_parameter(*item.match, p));
}

/// As for BERT and ELECTRA (Clark et al. 2020, arXiv:2003.10555): the last block and what follows
/// has the rate of the run, and each part below it that of the next one times layer_decay.
double ParamRates::depth_factor(const Parameter& p) {
  if (p.stage != stage_) stage_ = p.stage, in_blocks_ = false;
  const std::string_view block = block_of(p.name);
  if (block.empty()) {
    const bool below = p.stage == 0 && !in_blocks_ && !p.name.starts_with("head.");
    return p.role == ParamRole::embedding || below
               ? std::pow(options_.layer_decay, static_cast<double>(options_.layers))
               : 1;
  }
  in_blocks_ = true;
  const auto [stack, number] = stack_and_number(block);
  if (stack == "mtp") return 1;  // blocks after the last one
  if (stack_.empty()) stack_ = stack;
  const char* off = "set optimizer.layer_decay=1, and give the rates in optimizer.groups";
  MT_USER_CHECK(stack == stack_, ErrorClass::config,
                cat("optimizer.layer_decay: this model has blocks in '", stack_, "' and in '",
                    stack, "', so a block has no depth in one stack"),
                off);
  MT_USER_CHECK(number < options_.layers, ErrorClass::config,
                cat("optimizer.layer_decay: the model has a block ", block,
                    ", and its number of "
                    "blocks is ",
                    options_.layers),
                off);
  return std::pow(options_.layer_decay, static_cast<double>(options_.layers - 1 - number));
}

void ParamRates::note_names(const Parameter& p) {
  names_.insert(general_name(p.name));
  if (p.matrices.size() < 2) return;
  for (const LogicalMatrix& matrix : p.matrices)
    if (!matrix.name.empty()) matrices_[cat(layer_of(p.name), ".", matrix.name)] = p.name;
}

void ParamRates::add(const Parameter& p) {
  const double depth = options_.layer_decay == 1 ? 1 : depth_factor(p);
  if (places_.contains(p.name)) return;  // a tied table that another stage has, too
  Place place;
  auto described = [&](size_t g) {
    const bool item = embedding_ != g;
    return cat(groups_[g].setting, item ? cat(" (", groups_[g].name, ")") : "");
  };
  for (size_t g = 1; g < groups_.size(); ++g) {
    if (!is_in(g, p)) continue;
    MT_USER_CHECK(place.group == 0, ErrorClass::config,
                  cat(p.name, " is in two groups: ", described(place.group), " and ", described(g)),
                  "a parameter has one group: narrow one of the patterns, or add a role to it");
    place.group = g;
  }
  Group& group = groups_[place.group];
  if (!group.absolute) place.factor = depth * (options_.factor ? options_.factor(p) : 1);
  place.weight_decay = group.weight_decay.value_or(p.decay ? options_.weight_decay : 0);
  places_.emplace(p.name, place);
  if (!p.trained) {
    ++group.frozen;
    return;
  }
  note_names(p);
  const bool first = group.parameters++ == 0;
  group.elements += p.global.numel() - p.unused;
  group.least_factor = first ? place.factor : std::min(group.least_factor, place.factor);
  group.largest_factor = first ? place.factor : std::max(group.largest_factor, place.factor);
  group.decays.insert(place.weight_decay);
}

void ParamRates::add(const ParamList& parameters) {
  stage_ = 0, in_blocks_ = false;
  for (const Parameter& p : parameters.all()) add(p);
}

void ParamRates::require_matches() const {
  for (size_t g = 1; g < groups_.size(); ++g)
    if (groups_[g].parameters == 0) refuse_unmatched(g);
}

void ParamRates::refuse_unmatched(size_t g) const {
  const Group& group = groups_[g];
  const std::vector<std::string> names(names_.begin(), names_.end());
  const std::string all =
      cat("trained parameters, of which * matches any characters: ", join(names, ", "));
  if (group.frozen > 0)
    throw Error(
        ErrorClass::config,
        cat(group.setting, ": its ", counted(group.frozen, "parameter"),
            group.frozen == 1 ? " is frozen and has" : " are frozen and have", " no learning rate"),
        all);
  if (embedding_ == g)
    throw Error(ErrorClass::config,
                cat(group.setting, ": the model has no embedding of tokens and no output head"),
                "set optimizer.embedding_lr=null, and give the rate in optimizer.groups");
  const ParamGroup& item = options_.groups[g - 1];
  const std::string fault = group.setting + ": ";
  if (!item.match)
    throw Error(ErrorClass::config, cat(fault, "no parameter has the role ", *item.role), all);
  for (const auto& [matrix, parameter] : matrices_)
    if (!item.role && name_match(*item.match, within_block(matrix), matrix))
      throw Error(ErrorClass::config,
                  cat(fault, "'", *item.match, "' matches only a part of ", parameter,
                      ", which is updated as a whole"),
                  cat("match: '", general_name(within_block(parameter)), "'"));
  const std::vector<std::string> meant = nearest(*item.match, names);
  throw Error(ErrorClass::config,
              cat(fault, "'", *item.match, "' matches no parameter of the model",
                  item.role ? cat(" with the role ", *item.role) : ""),
              meant.empty() ? all : cat("did you mean ", join(meant, " or "), "?"));
}

double ParamRates::rate(const Group& group, int64_t step) const {
  const bool follows = !group.absolute && !group.min_lr;
  if (follows)
    return group.scale * learning_rate(options_.schedule, options_.lr, step, options_.total_steps);
  ScheduleConfig own = options_.schedule;
  if (group.min_lr) own.min_lr = *group.min_lr;
  if (options_.lr > 0) own.warmup_init_lr *= group.peak / options_.lr;
  return learning_rate(own, group.peak, step, options_.total_steps);
}

std::function<ParamRate(const Parameter&)> ParamRates::at(int64_t step) const {
  std::vector<double> rates;
  for (const Group& group : groups_) rates.push_back(rate(group, step));
  return [this, rates = std::move(rates)](const Parameter& p) {
    const auto found = places_.find(p.name);
    MT_CHECK(found != places_.end(), "'", p.name, "' has no learning rate");
    const Place& place = found->second;
    return ParamRate{rates[place.group] * place.factor, place.weight_decay};
  };
}

std::vector<std::pair<std::string, double>> ParamRates::figures(int64_t step) const {
  std::vector<std::pair<std::string, double>> out;
  for (size_t g = 1; g < groups_.size(); ++g)
    if (groups_[g].own_rate) out.emplace_back(cat("lr/", groups_[g].name), rate(groups_[g], step));
  return out;
}

std::string ParamRates::rate_text(const Group& group) const {
  const double low = group.peak * group.least_factor, high = group.peak * group.largest_factor;
  return cat("lr ", short_rate(low), low == high ? "" : cat(" to ", short_rate(high)),
             group.min_lr ? cat(" down to ", short_rate(*group.min_lr)) : "");
}

std::vector<std::string> ParamRates::lines() const {
  std::vector<std::string> out;
  if (groups_.size() == 1 && options_.layer_decay == 1) return out;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[(g + 1) % groups_.size()];  // the rest comes last
    if (group.parameters == 0) continue;
    std::vector<std::string> decays;
    for (const double decay : group.decays) decays.push_back(shortest(decay));
    out.push_back(cat(groups_.size() == 1 ? "all" : group.name, ": ",
                      counted(group.parameters, "parameter"), " of ",
                      human_count(static_cast<double>(group.elements)), ", ", rate_text(group),
                      ", weight decay ", join(decays, " or ")));
  }
  return out;
}

}  // namespace mtrain
