// The ranks of a job as processes of this machine that this program starts itself: they find each
// other as torchrun's do, through RANK, WORLD_SIZE and MASTER_ADDR in their environment
// (plugins/comm/tcp). Single-threaded.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mtrain {

/// Merges the output of ranks: a line that several ranks write is shown once. A line is shown when
/// a rank has written it more often than any other rank so far.
class CommonLines {
 public:
  explicit CommonLines(size_t ranks) : begun_(ranks) {}
  /// The part of this text of a rank that is to be shown: complete lines only; the rest waits for
  /// its line end.
  std::string take(size_t rank, const std::string& text);
  /// The remaining text of a rank that has ended.
  std::string end(size_t rank);

 private:
  std::string shown(size_t rank, const std::string& line);
  std::vector<std::string> begun_;
  struct Count {
    std::string line;
    std::vector<int> of;  // by rank
    int shown = 0;
  };
  std::vector<Count> counts_;
};

/// Starts `nproc` ranks with the arguments of this program, waits for them and returns the exit
/// status of the job. Each rank has its share of the cores. Signals that ask for a stop are
/// forwarded. When a rank fails, the others get time to report before they are ended. Throws
/// Error(io) if no process can be started.
int run_local_ranks(const std::vector<std::string>& words, int64_t nproc);

}  // namespace mtrain
