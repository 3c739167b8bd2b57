#include "mtrain/config/compose.h"

#include "compose_testing.h"

using namespace mtrain;
using namespace mtrain::testing;

// https://hydra.cc/docs/advanced/defaults_list/#composition-order
TEST_CASE("the recipe's own body stands last unless _self_ says otherwise") {
  check({
      {"defaults:\n- db: mysql\ndb: {host: b}\n", {}, "{db: {host: b, user: root}}"},
      {"defaults:\n- _self_\n- db: mysql\ndb: {host: b}\n", {}, "{db: {host: my, user: root}}"},
      {"defaults:\n- db: mysql\n- _self_\ndb: {host: b}\n", {}, "{db: {host: b, user: root}}"},
      {"defaults:\n- db: mysql\n- db@db: sqlite\n", {}, "is chosen twice"},
      {"defaults:\n- db: mysql\n- db@other: sqlite\n",
       {},
       "{db: {host: my, user: root}, other: {host: lite, file: x.db}}"},
      {"defaults:\n- _self_\n- db: mysql\n- _self_\n", {}, "_self_ appears twice"},
      {"defaults: []\na: 1\n", {}, "{a: 1}"},
      {"a: 1\n", {}, "{a: 1}"},
      {"defaults:\n- _self_@x\n", {}, "_self_ cannot have a package"},
      {"defaults:\n- server/apache\n", {}, "{server: {db: {kind: server-mysql}, port: 80}}"},
      {"defaults:\n- server: apache\n", {}, "{server: {db: {kind: server-mysql}, port: 80}}"},
      {"defaults:\n- common\n", {}, "{shared: 1}"},
      {"defaults:\n- ./common.yaml\nshared: 2\n", {}, "{shared: 2}"},
      {"defaults:\n- db: nested/deep\n", {}, "{db: {nested: {host: deep}}}"},
  });
}

// https://hydra.cc/docs/advanced/overriding_packages/
TEST_CASE("packages say where a config lands") {
  check({
      {"defaults:\n- db@a.b: mysql\n", {}, "{a: {b: {host: my, user: root}}}"},
      {"defaults:\n- db@_global_: mysql\n", {}, "{host: my, user: root}"},
      {"defaults:\n- db@_here_: mysql\n", {}, "{host: my, user: root}"},
      {"defaults:\n- db@src: mysql\n- db@dst: mysql\n",
       {},
       "{src: {host: my, user: root}, dst: {host: my, user: root}}"},
      {"defaults:\n- g: absolute\n", {}, "{g: {server: {db: {kind: server-mysql}}}}"},
      {"defaults:\n- g: here\n", {}, "{g: {kind: server-mysql}}"},
      {"defaults:\n- g: global\n", {}, "{foo: {kind: server-mysql}, g: {}}"},
      {"defaults:\n- g: header\n", {}, "{x: {w: {v: 1}}}"},
      {"defaults:\n- g@z: header\n", {}, "{z: {v: 1}}"},
      {"defaults:\n- g: header_global\n", {}, "{v: 1}"},
      {"defaults:\n- g: late_header\n", {}, "{g: {v: 1}}"},
      {"defaults:\n- server@admin: apache\n", {}, "{admin: {db: {kind: server-mysql}, port: 80}}"},
      {"defaults:\n- server/apache@admin\n", {}, "{admin: {db: {kind: server-mysql}, port: 80}}"},
      {"defaults:\n- db@.x: mysql\n", {}, "is not a group"},
  });
}

TEST_CASE("the hint for a mistyped option is an override that works") {
  Folder folder(kLibrary);
  ComposeRequest components;
  components.names_component = [](const std::string& key, const Node& value) {
    return key == "optim" && value.as_text() == "adam";
  };
  auto composed = [&](const char* recipe, const char* override) {
    return compose_text(folder, {recipe, {override}, ""}, nullptr, components);
  };
  const char *section = "optim: {type: adam, lr: 5}\n", *none = "a: 1\n";
  CHECK(composed(section, "optim=adan").find("did you mean optim=adam?") != std::string::npos);
  CHECK(composed(section, "optim=adam").find("error[") == std::string::npos);
  CHECK(composed(section, "+optim=adam").find("would replace") != std::string::npos);
  CHECK(composed(section, "optim=slov").find("did you mean +optim=slow?") != std::string::npos);
  CHECK(composed(none, "optim=adan").find("did you mean +optim=adam?") != std::string::npos);
  CHECK(composed(none, "+optim=adam") == "{a: 1, optim: {type: adam, lr: 3, eps: 1}}");
}

TEST_CASE("an added option replaces only what its choice is about") {
  const char* own = "tune: {type: lora, rank: 4, alpha: 8}\n";
  check({
      {own, {"+tune=qlora"}, "would replace settings of earlier files: tune.rank=4, tune.alpha=8"},
      {own, {"+tune=qlora"}, "help: write tune.base=nf4, in which qlora differs from lora; or"},
      {own, {"+tune=qlora"}, "write '- tune: qlora' to the recipe's defaults list"},
      {own, {"tune=qlora"}, "+tune=qlora would replace settings of earlier files: tune.rank=4"},
      {own, {"tune=qlora"}, "help: write tune.base=nf4, in which qlora differs from lora; or"},
      // alpha is what dora is about: its option has another one than lora's.
      {own, {"+tune=dora"}, "would replace settings of earlier files: tune.rank=4\n"},
      {own,
       {"+tune=dora"},
       "help: write tune.type=dora tune.alpha=16, in which dora differs from lora\n"},
      {"tune: {type: lora, rank: 32}\n",
       {"+tune=qlora"},
       "{tune: {type: lora, rank: 32, base: nf4, alpha: 32}}"},
      {"tune: {type: lora, alpha: 8}\n",
       {"+tune=dora"},
       "{tune: {type: dora, alpha: 16, rank: 32}}"},
      {"defaults:\n- tune: qlora\ntune: {rank: 4}\n",
       {},
       "{tune: {type: lora, base: nf4, rank: 4, alpha: 32}}"},
  });
  const Folder folder(kLibrary);
  ComposeRequest request;
  request.names_component = [](const std::string& key, const Node& value) {
    return key == "tune" && value.as_text() == "dora";
  };
  CHECK(compose_text(folder, {own, {"+tune=dora"}, ""}, nullptr, request)
            .find("help: write tune=dora: it chooses tune.type=dora and keeps the values that the "
                  "recipe itself sets") != std::string::npos);
  // What another component does not have is no loss.
  request.replace_component = [](Node& tree, const std::string& key, const std::string& name) {
    if (name == "dora") tree.get(key)->erase("rank");
  };
  CHECK(compose_text(folder, {own, {"+tune=dora"}, ""}, nullptr, request).find("error[") ==
        std::string::npos);
}

TEST_CASE("the hint for a name that no option has names components and known names, too") {
  Folder folder(kLibrary);
  ComposeRequest request;
  request.names_component = [](const std::string& key, const Node& value) {
    return key == "optim" && (value.as_text() == "adam" || value.as_text() == "adagrad");
  };
  request.components = [](const std::string& key) {
    return key == "optim" ? std::vector<std::string>{"adagrad", "adam"}
                          : std::vector<std::string>();
  };
  request.name_advice = [](const std::string& key, const std::string& name) {
    return std::string(key == "optim" && name.starts_with("shampoo") ? "shampoo is not built" : "");
  };
  auto help = [&](const char* recipe, const std::vector<std::string>& overrides) {
    const std::string text = compose_text(folder, {recipe, overrides, ""}, nullptr, request);
    const size_t at = text.find("help: ");
    return at == std::string::npos ? text : text.substr(at, text.find('\n', at) - at);
  };
  const char *listed = "defaults: [optim: slow]\n", *section = "optim: {type: adam}\n";
  // A component is accepted wherever the command line chooses an option.
  CHECK(help(listed, {"optim=adagrat"}) == "help: did you mean adagrad?");
  CHECK(help(section, {"optim=adagrat"}) == "help: did you mean optim=adagrad?");
  CHECK(help("a: 1\n", {"optim=adagrat"}) == "help: did you mean optim=adagrad?");
  CHECK(help("a: 1\n", {"optim=Adagrad"}) == "help: write optim=adagrad");
  CHECK(help(listed, {"optim=ada"}) == "help: did you mean adam or adagrad?");
  CHECK(help(listed, {"optim=SL-OW"}) == "help: did you mean slow?");
  CHECK(help(listed, {"optim=shampoo2"}) == "help: shampoo is not built");
  CHECK(help(listed, {"optim=nothing_like_it"}) == "help: choose one of them");
  CHECK(help("a: 1\n", {"optim=nothing_like_it"}) == "help: choose one of them, e.g. +optim=adam");
  const std::string all =
      compose_text(folder, {listed, {"optim=nothing_like_it"}, ""}, nullptr, request);
  CHECK(all.find("options of optim: adam, slow; components: adagrad, adam") != std::string::npos);
  // The recipe's own folder is on the search path, too: it is named once.
  CHECK(all.find("searched: " + folder.root().string()) != std::string::npos);
  CHECK(all.find(folder.root().string()) == all.rfind(folder.root().string()));
  // A defaults list has options only.
  CHECK(help("defaults: [optim: adagrat]\n", {}) == "help: choose one of them");
  CHECK(help("defaults: [optim: adagrad]\n", {}) ==
        "help: adagrad is a component and not an option: write `optim: adagrad` outside of the "
        "defaults list");
}

// https://hydra.cc/docs/advanced/defaults_list/#overriding-config-group-options
TEST_CASE("choices are changed by override entries and by the command line") {
  check({
      {"defaults:\n- server: apache\n- override server/db: sqlite\n",
       {},
       "{server: {db: {kind: server-sqlite}, port: 80}}"},
      {"defaults:\n- server: apache\n- override server/db: sqlite\n",
       {"server/db=mysql"},
       "{server: {db: {kind: server-mysql}, port: 80}}"},
      {"defaults:\n- db: mysql\n", {"db=sqlite"}, "{db: {host: lite, file: x.db}}"},
      {"defaults:\n- db: mysql\n", {"db=sqlite", "db.host=z"}, "{db: {host: z, file: x.db}}"},
      {"defaults:\n- db: mysql\n",
       {"db.host=z", "db=sqlite"},
       "{db: {host: z, file: x.db}}"},  // values come after choices
      {"defaults:\n- db: mysql\n", {"db={host: z}"}, "{db: {host: z, user: root}}"},
      {"defaults:\n- db@src: mysql\n", {"db@src=sqlite"}, "{src: {host: lite, file: x.db}}"},
      {"defaults:\n- db@src: mysql\n", {"db=sqlite"}, "did you mean db@src?"},
      {"defaults:\n- db@_global_: mysql\n", {"db@_global_=pg"}, "{host: pg}"},
      {"a: 1\n", {"db=sqlite"}, "write +db=sqlite to add it"},
      {"a: 1\n", {"db=mongo"}, "has no option 'mongo'"},
      {"a: 1\n", {"db=mysql_8"}, "did you mean +db=mysql?"},
      {"a: 1\n", {"db=MySQL"}, "write +db=mysql"},
      {"a: 1\n", {"nodb/x=y"}, "there is no config group nodb/x"},
      {"defaults:\n- db: mysql\n", {"db=mongo"}, "choose one of them"},
      {"a: 1\n", {"+db=sqlite"}, "{a: 1, db: {host: lite, file: x.db}}"},
      {"db: {host: mine}\n",
       {"+db=pg"},
       "{db: {host: pg}}"},  // an added choice comes after the recipe's body
      {"defaults:\n- db: mysql\n", {"+db=pg"}, "is chosen twice"},
      {"optim: {type: adam, lr: 5}\n",
       {"+optim=adam"},
       "would replace settings of earlier files: optim.lr=5"},
      {"optim: {lr: 5}\n", {"+optim=adam"}, "would replace settings of earlier files: optim.lr=5"},
      {"optim: {type: adam, lr: 5}\n",
       {"+optim=adam"},
       "write '- optim: adam' to the recipe's defaults list"},
      {"defaults:\n- optim: adam\noptim: {lr: 5}\n", {}, "{optim: {type: adam, lr: 5, eps: 1}}"},
      {"optim: {type: adam, lr: 5}\n", {"+optim=slow"}, "{optim: {type: adam, lr: 1}}"},
      {"optim: {type: adam, lr: 3}\n", {"+optim=adam"}, "{optim: {type: adam, lr: 3, eps: 1}}"},
      {"optim: {type: other, lr: 5}\n", {"+optim=adam"}, "{optim: {type: adam, lr: 3, eps: 1}}"},
      {"a: 1\n", {"++db=pg"}, "++ is for values"},
      {"db: {host: x}\n",
       {"~db", "+db=pg"},
       "cannot be removed: it is not in the defaults list"},  // not the option that is added
      {"db: {host: x}\n",
       {"+db=pg", "~db"},
       "the recipe has the section itself: choose another component, db=NAME"},
      {"defaults:\n- db: mysql\n", {"~db", "+db=pg"}, "{db: {host: pg}}"},
      {"defaults:\n- db: mysql\n- server: nginx\n", {"~db"}, "{server: {port: 81}}"},
      {"defaults:\n- db: mysql\n- server: nginx\n", {"~db=mysql"}, "{server: {port: 81}}"},
      {"defaults:\n- db: mysql\n", {"~db=pg"}, "its option is mysql"},
      {"a: 1\n", {"~db"}, "it is not in the defaults list"},
      {"defaults:\n- server/apache\n- db: pg\n", {"~server/apache"}, "{db: {host: pg}}"},
      {"defaults:\n- db: null\na: 1\n", {}, "{a: 1}"},
      {"defaults:\n- db: null\na: 1\n", {"db=pg"}, "{db: {host: pg}, a: 1}"},
      {"defaults:\n- db: mysql\na: 1\n", {"db=null"}, "{a: 1}"},
      {"defaults:\n- db: ???\n", {}, "options: mysql, pg, sqlite"},
      {"defaults:\n- db: ???\n", {"db=pg"}, "{db: {host: pg}}"},
      {"defaults:\n- optional db: nothing\na: 1\n", {}, "{a: 1}"},
      {"defaults:\n- optional db: pg\n", {}, "{db: {host: pg}}"},
      {"defaults:\n- db: mysqll\n", {}, "did you mean mysql?"},
      {"defaults:\n- db: [mysql, sqlite]\n", {}, "{db: {host: lite, user: root, file: x.db}}"},
      {"defaults:\n- db: [mysql, sqlite]\n", {"db=pg"}, "{db: {host: pg}}"},
      {"defaults:\n- db: mysql\n", {"db=[pg,sqlite]"}, "{db: {host: lite, file: x.db}}"},
      {"defaults:\n- db: []\na: 1\n", {}, "{a: 1}"},
      {"defaults:\n- db: mysql\n- exp: a\nlr: 1\n", {}, "{db: {host: pg}, lr: 1}"},
      {"defaults:\n- db: mysql\nlr: 1\n", {"+exp=a"}, "{db: {host: pg}, lr: 5}"},
      {"defaults:\n- db: mysql\nlr: 1\n",
       {"+exp=a", "db=sqlite"},
       "{db: {host: lite, file: x.db}, lr: 5}"},
      {"defaults:\n- db: mysql\n",
       {"+outer=o"},
       "{db: {host: lite, file: x.db}, lr: 5}"},  // the outer file's override wins
      {"defaults:\n- db: mysql\n- override db: pg\n", {}, "{db: {host: pg}}"},
      {"defaults:\n- override db: pg\n- db: mysql\n", {}, "comes after an override"},
      {"defaults:\n- exp: a\n- db: mysql\n", {}, "no earlier entry chooses it"},
      {"defaults:\n- override db: pg\n", {}, "it is not in the defaults list"},
      {"defaults:\n- db: mysql\n- db: pg\n", {}, "is chosen twice: mysql and pg"},
      {"defaults:\n- db: pg\n- db: pg\n", {}, "twice"},
      {"a: 1\n", {"no/group=x"}, "there is no config group no/group"},
  });
}

TEST_CASE("an option may be named by a variable of the environment") {
  ::setenv("MTRAIN_TEST_DB", "mysql", 1);
  ::unsetenv("MTRAIN_TEST_ABSENT");
  ::setenv("MTRAIN_TEST_TOKEN", "mysql", 1);
  check({
      {"defaults:\n- db: ${oc.env:MTRAIN_TEST_DB}\n", {}, "{db: {host: my, user: root}}"},
      {"defaults:\n- db: ${env:MTRAIN_TEST_ABSENT,mysql}\n", {}, "{db: {host: my, user: root}}"},
      {"defaults:\n- db@k: ${oc.env:MTRAIN_TEST_DB}\n- mix: ${db@k}_apache\n",
       {},
       "{k: {host: my, user: root}, mix: {mixed: true}}"},
      {"defaults:\n- db: ${oc.env:MTRAIN_TEST_ABSENT}\n",
       {},
       "the environment variable MTRAIN_TEST_ABSENT is not set"},
      {"defaults:\n- db: ${oc.env:MTRAIN_TEST_TOKEN}\n", {}, "may be a secret"},
      {"defaults:\n- db: ${now:%Y}\n", {}, "configs are chosen before it is evaluated"},
  });
}

// https://hydra.cc/docs/patterns/specializing_config/
TEST_CASE("an option may be named after other choices") {
  check({
      {"defaults:\n- db: mysql\n- server: apache\n- optional mix: ${db}_${server}\n",
       {},
       "{db: {host: my, user: root}, server: {db: {kind: server-mysql}, port: 80}, mix: {mixed: "
       "true}}"},
      {"defaults:\n- optional mix: ${db}_${server}\n- db: mysql\n- server: nginx\n",
       {},
       "{db: {host: my, user: root}, server: {port: 81}}"},
      {"defaults:\n- optional mix: ${db}_${server}\n- db: pg\n- server: nginx\n",
       {"db=mysql", "server=apache"},
       "{mix: {mixed: true}, db: {host: my, user: root}, server: {db: {kind: server-mysql}, port: "
       "80}}"},
      {"defaults:\n- mix: ${nothing}\n", {}, "a group in it has no choice"},
      {"defaults:\n- db: mysql\n- x: over\n- mix: ${x}\n", {}, "there is no config x/over"},
      {"defaults:\n- db: mysql\n- optional x: over\n- mix: ${db}\n",
       {},
       "there is no config mix/mysql"},
      {"defaults:\n- db@k: mysql\n- mix: ${db@k}_apache\n",
       {},
       "{k: {host: my, user: root}, mix: {mixed: true}}"},
  });
}

TEST_CASE("malformed lists and files are refused where they stand") {
  std::string many_patches = "patch: [a=1";
  for (int i = 0; i < 10000; ++i) many_patches += ", a=1";
  many_patches += "]\n";
  check({
      {"defaults: 3\n", {}, "wanted a list"},
      {"defaults:\n  optimizer: adamw\n", {}, "`- optimizer: adamw`"},
      {"defaults: base\n", {}, "`- base`"},
      {"defaults:\n- 3: x\n  4: y\n", {}, "an entry must name one group"},
      {"defaults:\n- [a]\n", {}, "wanted a name"},
      {"defaults:\n- null\n", {}, "wanted a name"},
      {"defaults:\n- db: {a: 1}\n", {}, "wanted an option"},
      {"defaults:\n- db: ../x\n", {}, "wanted an option"},
      {"defaults:\n- ../db/mysql\n", {}, "is not the name"},
      {"defaults:\n- 'db\\mysql'\n", {}, "is not the name"},
      {"defaults:\n- optionl db: mysql\n", {}, "unknown word 'optionl'"},
      {"defaults:\n- optional override db: mysql\n", {}, "cannot be optional"},
      {"defaults:\n- override common\n", {}, "is not the name"},
      {"defaults:\n- ./missing.yaml\n", {}, "there is no file"},
      {"defaults:\n- ./../x.yaml\n", {}, "is not a file next to"},
      {"defaults:\n- loop/one\n", {}, "include each other"},
      {"defaults:\n- bad: syntax\n", {}, "syntax.yaml:"},
      {"defaults:\n- nothing/here\n", {}, "there is no config nothing/here"},
      {"defaults:\n- db: mysql\n", {"db=../x"}, "wanted an option"},
      {"patch: 3\n", {}, "wanted a list of overrides"},
      {many_patches.c_str(), {}, "more than 10000 patches"},
      {"patch: [{a: 1}]\n", {}, "wanted an override"},
      {"defaults:\n- db: mysql\npatch: ['db=pg']\n", {}, "override db: OPTION"},
      {"a: [1]\npatch: ['a=1,2']\n", {}, "recipe.yaml:2:9"},
      {"patch: ['a']\n", {}, "recipe.yaml:1:9"},
  });
}

TEST_CASE("two choices of a group are reported where an override helps") {
  auto library = kLibrary;
  library.insert(library.end(), {{"base.yaml", "defaults: [db: mysql]\na: 1\n"}});
  Folder folder(library);
  for (const char* recipe :
       {"defaults: [./base.yaml, db: pg]\n", "defaults: [db: pg, ./base.yaml]\n"}) {
    CAPTURE(recipe);
    const std::string fault = compose_text(folder, {recipe, {}, ""});
    CAPTURE(fault);
    CHECK(fault.find("is chosen twice: mysql and pg") != std::string::npos);
    CHECK(fault.find("--> " + (folder.root() / "recipe.yaml").string() + ":1:") !=
          std::string::npos);
    CHECK(fault.find("write 'override db: pg' here") != std::string::npos);
  }
  CHECK(compose_text(folder, {"defaults: [./base.yaml, override db: pg]\n", {}, ""}) ==
        "{db: {host: pg}, a: 1}");
  const std::string added = compose_text(folder, {"defaults: [db: mysql]\n", {"+db=pg"}, ""});
  CHECK(added.find("write db=pg without '+'") != std::string::npos);
}

TEST_CASE("an absent file has no options of a group without a name") {
  Folder folder(kLibrary);
  const std::string fault = compose_text(folder, {"defaults: [comon]\na: 1\n", {}, ""});
  CHECK(fault.find("there is no config comon") != std::string::npos);
  CHECK(fault.find("did you mean common?") != std::string::npos);
  CHECK(fault.find("options of :") == std::string::npos);
}

TEST_CASE("an option of the command line that the recipe undoes is a warning") {
  Folder folder(kLibrary);
  struct Choice {
    const char* recipe;
    std::vector<OverrideText> overrides;
    const char* warning;  // words of it; empty: none
  };
  const std::vector<Choice> choices = {
      {"defaults: [db: mysql]\ndb: {host: h}\n", {{"db=pg", 1}}, "db.host: has no effect"},
      {"defaults: [db: mysql]\ndb: {host: h}\n", {{"db=pg", 1}}, "db.host=pg"},
      {"defaults: [db: mysql]\ndb: {host: h}\n", {{"db=sqlite", 1}}, ""},  // its file counts
      {"defaults: [db: mysql]\ndb: {host: pg}\n", {{"db=pg", 1}}, ""},     // says the same
      {"defaults: [db: mysql]\ndb: {host: h}\n", {{"db=pg", 1}, {"db.host=z", 2}}, ""},
      {"defaults: [db: pg]\ndb: {host: h}\n", {}, ""},
      {"defaults: [optim: slow]\noptim: {type: sgd}\n",
       {{"optim=adam", 1}},
       "optim.type: the recipe replaces"},
      {"defaults: [optim: slow]\noptim: {lr: 2}\n", {{"optim=adam", 1}}, ""},
      {"defaults: [_self_, db: mysql]\ndb: {host: h}\n", {{"db=pg", 1}}, ""},
  };
  for (const auto& item : choices) {
    CAPTURE(item.recipe);
    ComposeRequest request;
    request.recipe = (folder.root() / "recipe.yaml").string();
    request.text = item.recipe;
    request.search_path = {folder.root()};
    request.overrides = item.overrides;
    Report report;
    REQUIRE(compose(request, report).has_value());
    CHECK_MESSAGE(report.ok(), report.text());
    CHECK_MESSAGE(report.text().find(item.warning) != std::string::npos, report.text());
    CHECK(report.text().empty() == (*item.warning == '\0'));
  }
}

TEST_CASE("every value remembers its file through composition") {
  Folder folder(kLibrary);
  ComposeRequest request;
  request.recipe = (folder.root() / "recipe.yaml").string();
  request.text = "defaults:\n- db: mysql\ndb:\n  host: b\n";
  request.overrides = {{"db.host=c", 4}};
  Report report;
  auto out = compose(request, report);
  REQUIRE(out.has_value());
  const Node& host = out->tree.at("db.host");
  CHECK(host.loc().text() == "command line, argument 4");
  REQUIRE(host.history().size() == 2);
  CHECK(host.history()[0].where.text() == (folder.root() / "db/mysql.yaml:1:7").string());
  CHECK(host.history()[1].where.text() == (folder.root() / "recipe.yaml:4:9").string());
  REQUIRE(out->files.size() == 2);
  CHECK(out->files[0].path == "db/mysql");
  CHECK(out->files[0].package == "db");
  CHECK(out->choices.at("db") == "mysql");
}

TEST_CASE("a recipe is found by name, and the first folder of the search path wins") {
  Folder near({{"tiny.yaml", "defaults:\n- db: pg\n"}, {"db/pg.yaml", "host: near\n"}});
  Folder far(
      {{"db/pg.yaml", "host: far\n"}, {"db/other.yaml", "host: other\n"}, {"big.yaml", "a: 1\n"}});
  ComposeRequest request;
  request.recipe = "tiny";
  request.search_path = {near.root(), far.root()};
  Report report;
  auto out = compose(request, report);
  REQUIRE(out.has_value());
  CHECK(write_flow(out->tree) == "{db: {host: near}}");
  request.overrides = {{"db=other", 1}};
  CHECK(write_flow(compose(request, report)->tree) == "{db: {host: other}}");
  request.recipe = "bigg";
  CHECK_FALSE(compose(request, report).has_value());
  CHECK(report.text().find("did you mean big?") != std::string::npos);
  ConfigRepository repository({near.root(), far.root()});
  CHECK(repository.options("db") == std::vector<std::string>{"other", "pg"});
  CHECK_FALSE(repository.find("../x").has_value());
  CHECK_FALSE(repository.find("/etc/passwd").has_value());
}
