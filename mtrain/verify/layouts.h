// Whether a recipe trains the same model in every parallel layout: its shrunken twin is trained on
// one rank, then in each layout over ranks that are threads, and losses, gradient norms and each
// parameter's gradient are compared. A layout is held against a twin of the size that it has use
// for. Refers to the recipe and the plugins; for one thread.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/verify/bound.h"
#include "mtrain/verify/layout_list.h"
#include "mtrain/verify/run.h"
#include "mtrain/verify/twin.h"

namespace mtrain {

struct LayoutVerdict {
  enum class Kind { same, differs, failed };
  RankLayout layout;
  TwinSize size;  // of the twin that was trained
  Kind kind = Kind::same;
  std::string problem;  // what differs or failed, and what that looks like; empty when nothing
  // Largest relative differences from one rank: of the first step, and over all steps.
  double loss_first = 0, norm_first = 0, gradient = 0, loss = 0, norm = 0;
  std::string worst_gradient;  // the parameter whose gradient differs most beside its bound
  double share = 0;            // the largest difference as a share of its bound
  double seconds = 0;
  std::vector<int64_t> memory;  // peak bytes of tensors, per rank
  std::map<std::string, int64_t>
      sent;  // bytes that the first rank sent in the last step along each axis
};

struct VerifyOptions {
  int64_t ranks = 2, steps = 5;
  int64_t probes = 3;          // disturbed runs of one rank that the bound is measured with
  std::function<bool()> stop;  // asked before every step; true ends everything with Error
  Communicator* world =
      nullptr;  // ranks that are processes, each with a verifier of its own; null: threads
};

/// What one rank makes of a twin of one size.
struct LayoutReference {
  LayoutFigures figures;
  LayoutBound bound;
};

class MT_API LayoutVerifier {
 public:
  /// Makes the twin and lists its layouts. Throws Error(config) when the recipe cannot be trained
  /// on one rank.
  LayoutVerifier(const Recipe& recipe, PluginHost& plugins, VerifyOptions options);
  ~LayoutVerifier();
  LayoutVerifier(const LayoutVerifier&) = delete;
  LayoutVerifier& operator=(const LayoutVerifier&) = delete;

  const std::string& twin() const { return twin_; }
  const LayoutList& layouts() const { return layouts_; }
  DType dtype() const { return dtype_; }
  const TwinSize& whole() const { return whole_; }
  /// One rank's figures of the whole twin, and of what a layout is held against. Trains on one
  /// rank, undisturbed and disturbed, when they are asked for first.
  const LayoutReference& reference() { return reference(whole_); }
  const LayoutReference& reference(const RankLayout& layout) {
    return reference(twin_size(whole_, layout));
  }
  /// All that were asked for.
  const std::map<TwinSize, LayoutReference>& references() const { return references_; }
  /// Trains the twin in this layout and compares. An error of training is a verdict, not thrown.
  LayoutVerdict verify(const RankLayout& layout);
  /// Compares figures of a run with the reference.
  LayoutVerdict judge(const RankLayout& layout, const LayoutFigures& figures);

 private:
  const LayoutReference& reference(const TwinSize& size);
  LayoutFigures train(const TwinSize& size, const RankLayout& layout,
                      std::function<void(ParamList&, int64_t)> before_step = {});

  PluginHost& plugins_;
  VerifyOptions options_;
  std::string twin_;
  fs::path folder_;  // where the runs think they could save
  LayoutList layouts_;
  DType dtype_ = DType::f32;
  int64_t sample_tokens_ = 0;
  TwinSize whole_;
  std::map<TwinSize, LayoutReference> references_;
};

}  // namespace mtrain
