// ParamRates: the learning rate and weight decay of each parameter, from the groups of the recipe
// (optimizer.groups, embedding_lr, layer_decay). They depend only on names, roles and dimensions,
// so they are the same in every parallel layout. A value; for one thread at a time.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/nn/parameter.h"
#include "mtrain/optim/lr_schedule.h"

namespace mtrain {

/// An item of optimizer.groups. It applies to whole parameters.
struct ParamGroup {
  std::optional<std::string> match;  // pattern of names, as in name_pattern.h
  std::optional<std::string> role;   // with `match`: both must fit
  std::optional<double> lr, lr_scale, min_lr, weight_decay;
  void bind(Fields& f);
  /// What is wrong with valid values; empty: nothing.
  std::string fault() const;
  /// "*.norm*", "bias", "layers.* bias"
  std::string name() const;
};

struct ParamRateOptions {
  double lr = 0, weight_decay = 0;
  ScheduleConfig schedule = {};
  int64_t total_steps = 0;
  std::vector<ParamGroup> groups = {};
  std::optional<double> embedding_lr = {}, embedding_min_lr = {};
  double layer_decay = 1;  // the rate of a block, divided by that of the next one
  int64_t layers = 0;      // blocks of the model, for layer_decay
  std::function<double(const Parameter&)> factor = {};  // of a parameter's rate; empty: 1
};

/// Of one update of a parameter.
struct ParamRate {
  double lr = 0, weight_decay = 0;
};

class MT_API ParamRates {
 public:
  /// Throws Error(config) if the rate of a group would rise to its minimum.
  explicit ParamRates(ParamRateOptions options);

  /// Adds a parameter of the model. Call it for all parameters of a pipeline rank in their order,
  /// and to check a whole model, for those of all its pipeline ranks. Throws Error(config) for a
  /// parameter in two groups.
  void add(const Parameter& parameter);
  void add(const ParamList& parameters);
  /// Throws Error(config) for a group without trained parameters. REQUIRES: the whole model is
  /// added.
  void require_matches() const;

  /// The function for OptimizerState::Step in the update after `step` finished ones. It refers to
  /// this object. REQUIRES: the parameters are added.
  std::function<ParamRate(const Parameter&)> at(int64_t step) const;
  /// {"lr/embedding", 1e-4}: the rates of the groups that have their own.
  std::vector<std::pair<std::string, double>> figures(int64_t step) const;
  /// One line per group with its parameters, peak rate and weight decay; none without groups.
  /// REQUIRES: the whole model is added.
  std::vector<std::string> lines() const;

 private:
  /// The rate of a group: a schedule of its own, or a multiple of that of the run.
  struct Group {
    std::string name, setting;  // "embedding_lr", "optimizer.embedding_lr"
    double peak = 0;            // learning rate
    std::optional<double> min_lr = {};
    double scale = 1;       // of the run's rate, if min_lr is absent
    bool absolute = false;  // no factor applies to its rate
    bool own_rate = false;
    std::optional<double> weight_decay = {};
    // Of the added parameters that are trained:
    int64_t parameters = 0, elements = 0, frozen = 0;
    double least_factor = 0, largest_factor = 0;
    std::set<double> decays = {};
  };
  struct Place {
    size_t group = 0;  // 0: none, the rest
    double factor = 1;
    double weight_decay = 0;
  };
  Group group_of(const ParamGroup& item, size_t index) const;
  Group embedding_group() const;
  bool is_in(size_t group, const Parameter& p) const;
  double rate(const Group& group, int64_t step) const;
  double depth_factor(const Parameter& p);
  void require_no_rise(const Group& group) const;
  void note_names(const Parameter& p);
  [[noreturn]] void refuse_unmatched(size_t group) const;
  std::string rate_text(const Group& group) const;

  ParamRateOptions options_;
  std::vector<Group> groups_;        // the rest, then those of optimizer.groups, then the embedding
  std::optional<size_t> embedding_;  // in groups_
  std::unordered_map<std::string, Place> places_;  // by name; tied copies share one
  bool in_blocks_ = false;  // a block of the stage that is being added has been added
  int64_t stage_ = 0;
  std::string stack_;                            // the path before the blocks' numbers, "layers"
  std::set<std::string> names_;                  // with * for numbers, for messages
  std::map<std::string, std::string> matrices_;  // of fused parameters: name, parameter
};

}  // namespace mtrain
