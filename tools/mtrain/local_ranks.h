// The ranks of a job as processes of this machine that this program starts itself: they find each
// other as torchrun's do, through RANK, WORLD_SIZE and MASTER_ADDR in their environment
// (plugins/comm/tcp). Single-threaded.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mtrain {

/// Lines that several ranks wrote, each once: a line is shown when a rank says it more often than
/// any rank before.
class CommonLines {
 public:
  explicit CommonLines(size_t ranks) : begun_(ranks) {}
  /// What of this text of a rank is to be shown: whole lines only, the rest waits for its end.
  std::string take(size_t rank, const std::string& text);
  /// What is left of a rank that has ended.
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

/// Starts `nproc` ranks with the words of this program and waits for them: the exit status of the
/// job. Each rank has its share of the cores. Signals that ask for a stop are handed on; when a
/// rank fails, the others are given time to say what they know, and then ended. Throws Error(io)
/// where no process can be started.
int run_local_ranks(const std::vector<std::string>& words, int64_t nproc);

}  // namespace mtrain
