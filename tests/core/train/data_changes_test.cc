#include "mtrain/train/data_changes.h"

#include <doctest/doctest.h>

using namespace mtrain;
using Lines = std::vector<std::string>;

TEST_CASE("only what differs of the data is shown, wherever in the text it is") {
  const std::string start = R"({"dataset":"gpt","files":[{"path":"/a/very/long/path/that/is/the/same/on/both/sides","sha256":")";
  CHECK(data_changes(start + R"(aaaa"}],"split":"90,10,0"})", start + R"(bbbb"}],"split":"90,10,0"})") ==
        Lines{"files[0].sha256: aaaa -> bbbb"});
  CHECK(data_changes(R"({"a":1,"b":[1,2]})", R"({"a":1,"b":[1,2]})").empty());
  CHECK(data_changes(R"({"a":1,"b":[1,2]})", R"({"a":2,"b":[1],"c":null})") == Lines{"a: 1 -> 2", "b[1]: 2 -> absent", "c: absent -> null"});
}

TEST_CASE("of long values the part is shown where they begin to differ") {
  const std::string same(300, 'x');
  const Lines lines = data_changes("{\"a\":\"" + same + "1\"}", "{\"a\":\"" + same + "2\"}");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "a: …" + std::string(20, 'x') + "1 -> …" + std::string(20, 'x') + "2");
  CHECK(data_changes(same + "1", same + "2") == Lines{"…" + std::string(20, 'x') + "1 -> …" + std::string(20, 'x') + "2"});
  CHECK(data_changes("one", "one and more") == Lines{"one -> one and more"});
}

TEST_CASE("many changes are counted") {
  CHECK(data_changes("[1,2,3,4]", "[5,6,7,8]", 2) == Lines{"[0]: 1 -> 5", "[1]: 2 -> 6", "and 2 more"});
}
