#include "mtrain/data/dataset.h"

namespace mtrain {

const char* name(Split split) {
  switch (split) {
    case Split::train:
      return "train";
    case Split::valid:
      return "valid";
    case Split::test:
      return "test";
  }
  return "?";
}

}  // namespace mtrain
