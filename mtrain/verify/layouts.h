// Verifies that a recipe trains the same model in every parallel layout. A small twin of the recipe
// is trained on one rank, then in each layout, with ranks as threads or processes; losses, gradient
// norms and each parameter's gradient are compared. Each layout uses a twin of a suitable size
// (twin_size). Refers to the plugins, which must outlive it. Not synchronised: one thread at a
// time.
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
  TwinSize size;  // the size of the trained twin
  Kind kind = Kind::same;
  std::string problem;  // what differs or failed, and a probable cause; empty for Kind::same
  // Largest relative differences from one rank: in the first step, and over all steps.
  double loss_first = 0, norm_first = 0, gradient = 0, loss = 0, norm = 0;
  std::string worst_gradient;  // the parameter whose gradient differs most relative to its bound
  double share = 0;            // the largest difference as a fraction of its bound
  double seconds = 0;
  std::vector<int64_t> memory;  // peak bytes of tensors, per rank
  std::map<std::string, int64_t>
      sent;  // bytes that the first rank sent in the last step along each axis
};

struct VerifyOptions {
  int64_t ranks = 2, steps = 5;
  int64_t probes = 3;   // perturbed runs of one rank, to measure the bound
  LayoutFilter filter;  // the combinations to list; null: all
  /// Called before every step; true ends the run that is in progress. reference() then throws
  /// Error(usage); verify() returns a verdict of an incomplete run, which the caller must discard.
  std::function<bool()> stop;
  Communicator* world = nullptr;  // ranks as processes, each with its own verifier; null: threads
};

/// The figures of one rank for a twin of one size, and the bound.
struct LayoutReference {
  LayoutFigures figures;
  LayoutBound bound;
};

class MT_API LayoutVerifier {
 public:
  /// Builds the twin and lists its layouts. Throws Error(config) when the recipe cannot be trained
  /// on one rank.
  LayoutVerifier(const Recipe& recipe, PluginHost& plugins, VerifyOptions options);
  ~LayoutVerifier();
  LayoutVerifier(const LayoutVerifier&) = delete;
  LayoutVerifier& operator=(const LayoutVerifier&) = delete;

  const std::string& twin() const { return twin_; }
  const LayoutList& layouts() const { return layouts_; }
  DType dtype() const { return dtype_; }
  const TwinSize& whole() const { return whole_; }
  /// The reference of one rank for the whole twin, and for the twin of a layout's size. The first
  /// call trains on one rank, unperturbed and perturbed.
  const LayoutReference& reference() { return reference(whole_); }
  const LayoutReference& reference(const RankLayout& layout) {
    return reference(twin_size(whole_, layout));
  }
  /// All references so far.
  const std::map<TwinSize, LayoutReference>& references() const { return references_; }
  /// Trains the twin in this layout and compares. A training error becomes a verdict and is not
  /// thrown.
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
  fs::path folder_;  // run.dir of the runs, which save nothing
  LayoutList layouts_;
  DType dtype_ = DType::f32;
  int64_t sample_tokens_ = 0;
  TwinSize whole_;
  std::map<TwinSize, LayoutReference> references_;
};

}  // namespace mtrain
