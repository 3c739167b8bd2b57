// Secret: what the ranks of a job share and strangers do not know. Reads the environment and files;
// for the thread that starts the rank.
#pragma once
#include <string>

namespace mtrain::tcp {

struct Secret {
  static constexpr size_t kLeastBytes = 16, kMostBytes = 4096;
  std::string bytes;
  std::string source;  // where it is from, for messages: "MTRAIN_JOB_SECRET", "the file
                       // /home/ann/.config/mtrain/job_secret"
};

/// MTRAIN_JOB_SECRET; else what the file holds that MTRAIN_JOB_SECRET_FILE names; else the user's
/// own file, job_secret in $XDG_CONFIG_HOME/mtrain or ~/.config/mtrain, which is made when it is
/// missing: whoever is first makes it, and all have the same. `here_only`, all ranks are on this
/// machine: where it cannot be made, $XDG_RUNTIME_DIR/mtrain, and then mtrain-UID in /dev/shm or
/// the folder for temporary files, do as well. Throws Error(config) for one that is too short, that
/// others may read, or that can be neither read nor made.
Secret find_secret(bool here_only = false);

}  // namespace mtrain::tcp
