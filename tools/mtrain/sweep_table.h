// Results of the trials of a sweep: a table for the terminal, and sweep.csv in the sweep's folder.
// Single-threaded.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/recipe/sweep_trials.h"

namespace mtrain {

struct TrialResult {
  int64_t trial = 0;
  std::vector<std::pair<std::string, std::string>> settings;  // the varying ones: key and value
  std::string outcome = "not run";  // "done", "stopped", "faulty", "failed (14)"
  int64_t steps = 0;
  std::optional<double> last_loss, best_loss, best_val_loss;
  std::optional<double> seconds;  // of its training steps, over all calls
};

class SweepTable {
 public:
  explicit SweepTable(const std::vector<SweepTrial>& trials);
  TrialResult& operator[](size_t trial) { return rows_[trial]; }
  /// Reads steps, losses and time of a trial from the metrics in its run folder.
  void read_metrics(size_t trial, const fs::path& run_folder);
  std::string text() const;
  std::string csv() const;
  /// Writes sweep.csv atomically; on failure the existing file stays. Throws Error(io).
  void save(const fs::path& folder) const;

 private:
  std::vector<TrialResult> rows_;
};

}  // namespace mtrain
