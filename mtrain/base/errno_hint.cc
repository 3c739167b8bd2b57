#include "mtrain/base/errno_hint.h"

#include <cerrno>

namespace mtrain {

const char* errno_hint(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return kFullDiskHint;
    case EACCES:
    case EPERM:
    case EROFS:
      return "check the permissions of the file and its folder";
    case ENOENT:
      return "check the path for a typo";
    case EFBIG:
      return "the file reached the largest size that is allowed: raise the limit (ulimit -f), or "
             "write to another file system";
    case EMFILE:
    case ENFILE:
      return "too many files are open: raise the limit (ulimit -n)";
    case ENOMEM:
      return "free some memory";
    case EIO:
      return "check the disk or file server";
    default:
      return "";
  }
}

}  // namespace mtrain
