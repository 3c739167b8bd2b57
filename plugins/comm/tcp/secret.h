// Secret: shared by the ranks of a job, to authenticate each other. Reads the environment and
// files; for the thread that starts the rank.
#pragma once
#include <string>

namespace mtrain::tcp {

struct Secret {
  static constexpr size_t kLeastBytes = 16, kMostBytes = 4096;
  std::string bytes;
  std::string source;  // its origin, for messages: "MTRAIN_JOB_SECRET", "the file
                       // /home/ann/.config/mtrain/job_secret"
};

/// MTRAIN_JOB_SECRET; else the content of the file in MTRAIN_JOB_SECRET_FILE; else the user's own
/// file, job_secret in $XDG_CONFIG_HOME/mtrain or ~/.config/mtrain. The first rank creates this
/// file if it is missing, and all ranks use the same. If it cannot be created and `here_only` (all
/// ranks are on this machine), $XDG_RUNTIME_DIR/mtrain is used, and then mtrain-UID in /dev/shm or
/// in the folder for temporary files. Throws Error(config) for a secret that is too short or
/// readable by others, or that can be neither read nor created.
Secret find_secret(bool here_only = false);

}  // namespace mtrain::tcp
