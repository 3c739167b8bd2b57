// Compares the data of a checkpoint with the data of the current run. Stateless functions; safe
// from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// True when two texts of Dataset::identity() are of the same data. Prepared files may have other
/// names: their sizes and checksums count. Shares ("split", "weights") may be written in another
/// way if they are in the same proportion: "80,20" for "80,20,0", [5, 3, 2] for [0.5, 0.3, 0.2].
MT_API bool same_data(const std::string& before, const std::string& now);

/// Compares two texts of Dataset::identity(). Returns one line for each value that differs, "split:
/// 9,1,0 -> 8,1,1", and for each file, "corpus has different contents: corpus.bin had 96 bytes and
/// has 98", at most `limit`. For texts that are not JSON, returns the parts around the first
/// difference. Empty for the same data.
MT_API std::vector<std::string> data_changes(const std::string& before, const std::string& now,
                                             size_t limit = 6);
/// The same for only the files. Also empty for texts without files.
MT_API std::vector<std::string> data_file_changes(const std::string& before,
                                                  const std::string& now);

}  // namespace mtrain
