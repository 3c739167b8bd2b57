#include "mtrain/finetune/record_file.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../data/data_files.h"

using namespace mtrain;
using namespace mtrain::finetune;
using namespace mtrain::testing;

namespace {

struct Read {
  std::vector<std::string> records, places;
  int64_t skipped = 0;
};

Read read(const fs::path& path, bool skip = false, int64_t limit = 10) {
  Read out;
  BadRecords bad(skip, limit);
  read_records(path, bad, [&](Json& record, const std::string& place) {
    out.records.push_back(record.dump());
    out.places.push_back(fs::path(place).filename().string());
  });
  out.skipped = bad.skipped();
  return out;
}

}  // namespace

TEST_CASE("records are the lines of a file, or the items of one list") {
  ScratchFolder scratch;
  put(scratch / "a.jsonl",
      "\xEF\xBB\xBF{\"b\":1,\"a\":2}\r\n\n  \n{\"x\":{\"y\":[1,{\"z\":null}]}}");
  Read lines = read(scratch / "a.jsonl");
  CHECK(lines.records ==
        std::vector<std::string>{"{\"b\":1,\"a\":2}", "{\"x\":{\"y\":[1,{\"z\":null}]}}"});
  CHECK(lines.places == std::vector<std::string>{"a.jsonl:1", "a.jsonl:4"});
  put(scratch / "a.json", "\n [ {\"b\":1,\"a\":[{\"c\":2},{\"c\":3}]},\n{} , {\"d\":\"[\"}\n]\n");
  Read list = read(scratch / "a.json");
  CHECK(list.records ==
        std::vector<std::string>{"{\"b\":1,\"a\":[{\"c\":2},{\"c\":3}]}", "{}", "{\"d\":\"[\"}"});
  CHECK(list.places ==
        std::vector<std::string>{"a.json: record 0", "a.json: record 1", "a.json: record 2"});
  put(scratch / "empty.json", "[]");
  CHECK(read(scratch / "empty.json").records.empty());
  put(scratch / "nothing", "");
  CHECK(read(scratch / "nothing").records.empty());
}

TEST_CASE("an object around the list of records is refused with the command that takes it off") {
  ScratchFolder scratch;
  put(scratch / "x.json", R"({"data": [{"messages": []}, {"messages": []}]})");
  expect_error(ErrorClass::data,
               {"x.json is one object whose field 'data' has the list of records",
                "wanted one object per line, or one list of objects; write the list alone: jq -c "
                "'.[\"data\"][]' ",
                "x.json > records.jsonl"},
               [&] { read(scratch / "x.json"); });
  // Lists of messages are records.
  for (const char* record : {R"({"messages":[{"role":"user","content":"a"}]})",
                             R"({"turns":[{"who":"me","says":"a"}]})", R"({"data":[]})"}) {
    put(scratch / "y.json", record);
    CHECK(read(scratch / "y.json").records == std::vector<std::string>{record});
  }
}

TEST_CASE("records are also read from compressed files") {
  ScratchFolder scratch;
  const std::string lines = "\xEF\xBB\xBF{\"a\":1}\n\n{\"a\":2}\n",
                    list = "\xEF\xBB\xBF\n[{\"a\":1}, {\"a\":2}]";
  put(scratch / "x.jsonl.gz", stored_gzip(lines));
  put(scratch / "x.json.gz", stored_gzip(list));
  put(scratch / "named.jsonl", stored_gzip(lines));  // the content decides, not the name
  for (const char* name : {"x.jsonl.gz", "x.json.gz", "named.jsonl"}) {
    CAPTURE(name);
    CHECK(read(scratch / name).records == std::vector<std::string>{"{\"a\":1}", "{\"a\":2}"});
  }
  CHECK(read(scratch / "x.jsonl.gz").places[1] == "x.jsonl.gz:3");
  CHECK(read(scratch / "x.json.gz").places[1] == "x.json.gz: record 1");
  put(scratch / "cut.json.gz", stored_gzip(list).substr(0, 30));
  expect_error(ErrorClass::data, {"cut.json.gz ends inside its compressed stream"},
               [&] { read(scratch / "cut.json.gz"); });
}

TEST_CASE("an invalid record is reported with its place, or left out and counted") {
  ScratchFolder scratch;
  const std::string deep = std::string(80, '[') + std::string(80, ']');
  struct Fault {
    std::string text;
    std::vector<std::string> says;
  };
  for (const Fault& fault :
       {Fault{"{\"a\":1}\n{\"a\":\n", {"x:2", "not valid JSON", "byte"}},
        {"{\"a\":1}\n7\n", {"x:2", "number, not an object"}},
        {"{\"a\":1}\n{\"a\":1e400}\n", {"x:2", "cannot be read", "1e400"}},
        {"[{\"a\":1},{\"a\":-1e400}]", {"record 1", "cannot be read", "1e400"}},
        {"{\"a\":1,\"a\":2}", {"x:1", "'a' twice"}},
        {"{\"a\":{\"b\":1,\"c\":{},\"b\":2}}", {"'b' twice"}},
        {"{\"a\":" + deep + "}", {"x:1", "nested deeper"}},
        {"{\"a\":\"\xFF\"}", {"x:1", "UTF-8"}},
        {"{\"a\":\"\\ud800\"}", {"x:1", "surrogate"}},
        {"[{\"a\":1},\n{\"a\":]", {"record 1", "not valid JSON", "byte"}},
        {"[{\"a\":1}, 3]", {"record 1", "number, not an object"}},
        {"[{\"a\":1}, [2]]", {"record 1", "array, not an object"}},
        {"[{\"a\":1,\"a\":1}]", {"record 0", "'a' twice"}}}) {
    CAPTURE(fault.text);
    put(scratch / "x", fault.text);
    for (const auto& says : fault.says)
      expect_error(ErrorClass::data, {says}, [&] { read(scratch / "x"); });
  }
  put(scratch / "x", "{\"a\":1}\n{\n[]\n{\"a\":2}\n");
  Read rest = read(scratch / "x", true);
  CHECK(rest.records.size() == 2);
  CHECK(rest.skipped == 2);
  expect_error(ErrorClass::data, {"x:3", "more than 1", "max_bad"},
               [&] { read(scratch / "x", true, 1); });
  expect_error(ErrorClass::io, {"nowhere does not exist"}, [&] { read(scratch / "nowhere"); });
  expect_error(ErrorClass::io, {"is a folder"}, [&] { read(scratch.path()); });
}
