#include "mtrain/finetune/record_files.h"

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::finetune {

void RecordFiles::bind_files(Fields& f, std::string_view path_doc, const std::string& example) {
  f.resume(ResumeClass::data);
  f("path", path, path_doc).example(example).input_path();
  f("valid_path", valid_path, "records for validation; split is then not applied").input_path();
  f("test_path", test_path, "records for testing; split is then not applied").input_path();
  f("split", split,
    "proportions of the records for train, valid and test, which are assigned at random; one above "
    "0 gives at least one record, if there are enough")
      .example("95,5,0");
}

void require_split(bool there, Split which) {
  MT_USER_CHECK(
      there, ErrorClass::config,
      cat("there is no ", name(which), " data: dataset.", name(which), "_path is not set"),
      "set it, or leave both valid_path and test_path out so that dataset.split divides the "
      "records");
}

}  // namespace mtrain::finetune
