#include "mtrain/config/sweep.h"

#include <doctest/doctest.h>

#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

using namespace mtrain;

namespace {

struct Row {
  std::vector<std::string> overrides;
  const char* trials;  // "a=1 b=2; a=1 b=3", or words of the fault
  const char* recipe = "";
};

/// The settings of an override where o.rate is another name of o.lr and t.epochs an alternative to
/// t.steps.
std::vector<std::string> named_settings(const std::string& key, const Node* value) {
  if (!value || !value->is_map())
    return {key == "o.rate" ? "o.lr" : key == "t.epochs" ? "t.steps" : key};
  std::vector<std::string> out;
  for (const auto& entry : value->entries())
    for (auto& setting : named_settings(join_path(key, entry.key), &entry.value))
      out.push_back(std::move(setting));
  return out;
}

Sweep sweep_of(const Row& row, Report& report) {
  Node recipe = *row.recipe ? parse_yaml(row.recipe, "r.yaml") : Node();
  SweepRequest request;
  request.recipe = &recipe;
  int argument = 2;
  for (const auto& text : row.overrides) request.overrides.push_back({text, argument++});
  request.options_of = [](const std::string& group) {
    return group == "db" ? std::vector<std::string>{"mysql", "pg", "pgx", "sqlite"}
                         : std::vector<std::string>{};
  };
  request.settings_of = named_settings;
  request.is_text = [](const std::string& key) { return key == "text"; };
  return read_sweep(request, report).value_or(Sweep());
}

std::string trials_of(const Row& row) {
  Report report;
  Sweep sweep = sweep_of(row, report);
  std::vector<std::string> out;
  for (const auto& trial :
       report.ok() ? expand(sweep, report) : std::vector<std::vector<OverrideText>>{}) {
    std::vector<std::string> texts;
    for (const auto& text : trial) texts.push_back(text.text);
    out.push_back(join(texts, " "));
  }
  return report.ok() ? join(out, "; ") : report.text();
}

}  // namespace

// https://hydra.cc/docs/advanced/override_grammar/extended/#sweeps
TEST_CASE("the combinations of a sweep, the last setting first") {
  const Row rows[] = {
      {{"a=1,2"}, "a=1; a=2"},
      {{"a=choice(1, 2)"}, "a=1; a=2"},
      {{"a=choice(1,2)", "b=x,y"}, "a=1 b=x; a=1 b=y; a=2 b=x; a=2 b=y"},
      {{"k=0", "a=1,2", "m=9"}, "k=0 a=1 m=9; k=0 a=2 m=9"},
      {{"k=0"}, "k=0"},
      {{"a=range(3)"}, "a=0; a=1; a=2"},
      {{"a=range(1,4)"}, "a=1; a=2; a=3"},
      {{"a=range(5,0,-2)"}, "a=5; a=3; a=1"},
      {{"a=range(start=1,stop=2)"}, "a=1"},
      {{"a=range(0,0.5,0.1)"}, "a=0.0; a=0.1; a=0.2; a=0.3; a=0.4"},
      {{"a=range(1e-3,4e-3,1e-3)"}, "a=0.001; a=0.002; a=0.003"},
      {{"a=int(range(0,3))"}, "a=0; a=1; a=2"},
      {{"a=float(range(1,3))"}, "a=1.0; a=2.0"},
      {{"a=sort(3,1,2)"}, "a=1; a=2; a=3"},
      {{"a=sort(choice(b,a),reverse=true)"}, "a=b; a=a"},
      {{"a=int(2.5,'7',true)"}, "a=2; a=7; a=1"},
      {{"a=str(1,2)"}, "a='1'; a='2'"},
      {{"a=[1,2],[3]"}, "a=[1,2]; a=[3]"},
      {{"a={x:1},{x:[y]}"}, "a={'x':1}; a={'x':[y]}"},
      {{"a='x,y',z"}, "a='x,y'; a=z"},
      {{"a='it\\'s',null"}, "a='it\\'s'; a=null"},
      {{"a=e=1.pt,e=2.pt"}, "a=e=1.pt; a=e=2.pt"},
      {{"a=4k,8k"}, "a=4k; a=8k"},
      {{"a=inf,-inf,NaN"}, "a=inf; a=-inf; a=nan"},
      {{"+a=1,2", "++b=3,4"}, "+a=1 ++b=3; +a=1 ++b=4; +a=2 ++b=3; +a=2 ++b=4"},
      {{"db=glob(*)"}, "db=mysql; db=pg; db=pgx; db=sqlite"},
      {{"db=glob([m*,pg?])"}, "db=mysql; db=pgx"},
      {{"db=glob(*,exclude=[pg*])"}, "db=mysql; db=sqlite"},
      {{"db=glob('[!p]*')"}, "db=mysql; db=sqlite"},
      {{"db=tag(a,b,choice(pg,mysql))"}, "db=pg; db=mysql"},
      {{"arm=zip(model=choice(a,b), dist.tp=choice(1,2))", "s=0,1"},
       "model=a dist.tp=1 s=0; model=a dist.tp=1 s=1; model=b dist.tp=2 s=0; model=b dist.tp=2 "
       "s=1"},
      {{"z=zip(+db@x=choice(pg,mysql),n=range(2))"}, "+db@x=pg n=0; +db@x=mysql n=1"},
      {{"a=shuffle(range(8),seed=3)"}, "a=5; a=0; a=7; a=3; a=1; a=4; a=2; a=6"},
      {{"a=shuffle(1,2,3)"}, "a=1; a=3; a=2"},
  };
  for (const auto& row : rows) {
    std::string all = join(row.overrides, " ");
    CAPTURE(all);
    CHECK(trials_of(row) == row.trials);
  }
}

TEST_CASE("a recipe says a sweep too, and the command line wins") {
  const Row rows[] = {
      {{}, "a.b=1; a.b=2", "a.b: 1,2"},
      {{}, "a.b=1; a.b=2", "{a.b: 'choice(1,2)'}"},
      {{}, "a.b=1; a.b=x", "a.b: [1, x]"},
      {{}, "k=3 a=1; k=3 a=2", "{k: 3, a: 'range(1,3)'}"},
      {{"a=7"}, "a=7", "a: 1,2"},
      {{"a=7,8"}, "a=7; a=8", "a: 1,2"},
      {{"b=7,8"}, "a=1 b=7; a=1 b=8; a=2 b=7; a=2 b=8", "a: 1,2"},
      {{"z=zip(a=choice(5,6),b=choice(1,2))"}, "a=5 b=1; a=6 b=2", "a: 1,2"},
      {{}, "m=a k=1; m=b k=2", "arm: zip(m=choice(a,b), k=choice(1,2))"},
      {{}, "r.yaml:1:4", "a: choice(1"},
      {{}, "sweep.optimizer: wanted values, got a map", "optimizer: {lr: 1}"},
      {{}, "wanted a map", "[1]"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.recipe);
    std::string got = trials_of(row);
    CAPTURE(got);
    CHECK(got.find(row.trials) != std::string::npos);
    CHECK((got == row.trials || got.starts_with("error[")));
  }
}

TEST_CASE("the command line wins for a setting, whatever name either of them uses") {
  const Row rows[] = {
      {{"o.rate=7"}, "s=0 o.rate=7; s=1 o.rate=7", "{o.lr: '1,2', s: '0,1'}"},
      {{"o.lr=7"}, "o.lr=7", "o.rate: 1,2"},
      {{"o.rate=7,8"}, "o.rate=7; o.rate=8", "o.lr: 1,2"},
      {{"o={rate: 7, x: 1}"}, "o={rate: 7, x: 1}", "o.lr: 1,2"},
      {{"o={x: 1}"}, "o.lr=1 o={x: 1}; o.lr=2 o={x: 1}", "o.lr: 1,2"},
      {{"o={x: 1},{rate: 2}"}, "o={'x':1}; o={'rate':2}", "o.lr: 1,2"},
      {{"++o.rate=7"}, "++o.rate=7", "o.lr: 1,2"},
      {{"~o.rate"}, "~o.rate", "o.lr: 1,2"},
      {{"~o"}, "~o", "o.lr: 1,2"},
      {{"~db"}, "db.x=1 ~db; db.x=2 ~db", "db.x: 1,2"},  // an option of a group, not a section
      {{"db=null"}, "db.x=1 db=null; db.x=2 db=null", "db.x: 1,2"},
      {{"db=pg"}, "db=pg", "db: glob(*)"},
      {{"t.epochs=3"}, "t.epochs=3", "t.steps: 1,2"},
      {{"l[0]=3"}, "l=[1] l[0]=3; l=[2] l[0]=3", "l: choice([1],[2])"},
      {{"l=append(3)"}, "l=[1] l=append(3); l=[2] l=append(3)", "l: choice([1],[2])"},
      {{"o.rate=7"}, "b=1 o.rate=7; b=2 o.rate=7", "arm: zip(o.lr=choice(5,6), b=choice(1,2))"},
      {{"o.rate=7", "b=3"}, "o.rate=7 b=3", "arm: zip(o.lr=choice(5,6), b=choice(1,2))"},
      {{"arm=zip(c=choice(1,2))"}, "c=1; c=2", "arm: zip(o.lr=choice(5,6), b=choice(1,2))"},
      {{"z=zip(o.rate=choice(3,4), c=choice(1,2))"}, "o.rate=3 c=1; o.rate=4 c=2", "o.lr: 1,2"},
      {{"o.lr=7"}, "o.lr=7", "o.rate: choice(1"},  // nobody reads what is replaced
  };
  for (const auto& row : rows) {
    std::string all = join(row.overrides, " ");
    CAPTURE(all);
    CAPTURE(row.recipe);
    CHECK(trials_of(row) == row.trials);
  }
}

TEST_CASE("a setting that varies has no other value") {
  struct Refusal {
    Row row;
    const char* also;  // further words of the fault
  };
  const Refusal refusals[] = {
      {{{"o.lr=1,2", "o.rate=3,4"}, "o.rate: sets the same as o.lr, which varies, too"},
       "o.lr varies at command line, argument 2"},
      {{{"t.steps=1,2", "t.epochs=3,4"}, "t.epochs: sets the same as t.steps, which varies, too"},
       "keep one of the two"},
      {{{"o={lr: 1},{lr: 2}", "o.rate=3,4"}, "o.rate: sets the same as o, which varies, too"}, ""},
      {{{"z=zip(o.lr=choice(1,2), o.rate=choice(1,2))"}, "o.rate: sets the same as o.lr"}, ""},
      {{{"l[0]=1,2", "l=[3],[4]"}, "l: sets the same as l[0], which varies, too"}, ""},
      {{{"o.lr=1,2", "o.lr=7"}, "o.lr: varies, and is also set to one value"},
       "command line, argument 3"},
      {{{"o.lr=1,2", "o.rate=7"}, "o.rate: sets the same as o.lr, which varies"}, "argument 3"},
      {{{"o.lr=1,2", "o={lr: 5}"}, "o: sets the same as o.lr, which varies"}, ""},
      {{{"o.lr=1,2", "~o.rate"}, "o.rate: sets the same as o.lr, which varies"}, ""},
      {{{"t.steps=1,2", "t.epochs=7"}, "t.epochs: sets the same as t.steps, which varies"}, ""},
      {{{"o={lr: 1, x: 2},{lr: 2}", "o.x=7"}, "o.x: sets the same as o, which varies"}, ""},
      {{{"o.x=7"}, "o.x: sets the same as o, which varies", "o: 'choice({lr: 1, x: 2},{lr: 2})'"},
       "o varies at r.yaml:1:4"},
      {{{"z=zip(a=choice(1,2), b=choice(1,2))", "b=7"}, "b: varies, and is also set"}, ""},
      {{{}, "o.rate: sets the same as o.lr, which varies", "{o.lr: '1,2', o.rate: 3}"}, ""},
  };
  for (const auto& [row, also] : refusals) {
    std::string all = join(row.overrides, " ");
    CAPTURE(all);
    std::string got = trials_of(row);
    CAPTURE(got);
    CHECK(got.starts_with("error[sweep]"));
    CHECK(got.find(row.trials) != std::string::npos);
    CHECK(got.find(also) != std::string::npos);
  }
  // What comes before the values of the sweep is replaced by them, and what follows may change a
  // part of them.
  const Row rows[] = {
      {{"o.rate=7", "o.lr=1,2"}, "o.rate=7 o.lr=1; o.rate=7 o.lr=2"},
      {{"o={lr: 7}", "o.lr=1,2"}, "o={lr: 7} o.lr=1; o={lr: 7} o.lr=2"},
      {{"l=[1],[2]", "l=append(3)"}, "l=[1] l=append(3); l=[2] l=append(3)"},
      {{"l=[1],[2]", "l[0]=3,4"}, "l=[1] l[0]=3; l=[1] l[0]=4; l=[2] l[0]=3; l=[2] l[0]=4"},
      {{"o.lr=1,2", "o={x: 5}"}, "o.lr=1 o={x: 5}; o.lr=2 o={x: 5}"},
  };
  for (const auto& row : rows) {
    std::string all = join(row.overrides, " ");
    CAPTURE(all);
    CHECK(trials_of(row) == row.trials);
  }
}

TEST_CASE("what no sweep can be is refused with its fix") {
  const Row rows[] = {
      {{"a=choice()"}, "no value to choose from"},
      {{"a=choice(choice(1))"}, "nested"},
      {{"a=choice(1),2"}, "combined with further values"},
      {{"a=[choice(1,2)]"}, "inside a list"},
      {{"a=1,"}, "a value is missing"},
      {{"a=choice(1,,2)"}, "a value is missing"},
      {{"a=range(1,2,0)"}, "step is 0"},
      {{"a=range(3,1)"}, "the range is empty"},
      {{"a=range(0,1e9)"}, "more than 100000"},
      {{"a=range(0,1e300,1e-300)"}, "too far apart"},
      {{"a=range(0,inf)"}, "finite"},
      {{"a=range(a)"}, "finite numbers, got a"},
      {{"a=range(1,2,3,4)"}, "too many values"},
      {{"a=interval(0,1)"}, "no finite list of values"},
      {{"a=interval(1,0)"}, "below"},
      {{"a=interval(0,1,log=true)"}, "above 0"},
      {{"a=str(range(3))"}, "only be cast"},
      {{"a=int(x,1)"}, "cannot make x an integer"},
      {{"a=sort(1,x)"}, "can be sorted"},
      {{"a=tag(x)"}, "last value"},
      {{"a=glob(*)"}, "this is not one"},
      {{"db=glob(x*)"}, "no option of db matches"},
      {{"a=zip(b=choice(1,2),c=choice(1))"}, "b has 2 values, c has 1"},
      {{"a=zip(b=1)"}, "needs a choice"},
      {{"a=zip(b=interval(1,2))"}, "needs a choice"},
      {{"a=zip(1)"}, "each member"},
      {{"a=zip(.=choice(1))"}, "not the path of a setting"},
      {{"a=1,2", "a=3,4"}, "varies twice"},
      {{"a=1,2", "z=zip(a=choice(1,2))"}, "varies twice"},
      {{"~a=1,2"}, "one value"},
      {{"a=chioce(1,2)"}, "did you mean choice"},
      {{"a=append(1),2"}, "combined with further values"},
      {{"a=range(0,400)", "b=range(0,400)"}, "160000 trials"},
      {{"a=range(0,99999)", "b=range(0,99999)", "c=range(0,99999)"}, "more than 200000 values"},
      {{"z=zip(a1=range(9),a2=range(9),a3=range(9),a4=range(9),a5=range(9),a6=range(9),a7=range(9),"
        "a8=range("
        "9),"
        "b1=range(9),b2=range(9),b3=range(9),b4=range(9),b5=range(9),b6=range(9),b7=range(9),b8="
        "range(9),"
        "c=range(9))"},
       "too many ranges"},
  };
  for (const auto& row : rows) {
    std::string all = join(row.overrides, " ");
    CAPTURE(all);
    std::string got = trials_of(row);
    CAPTURE(got);
    CHECK(got.starts_with("error["));
    CHECK(got.find(row.trials) != std::string::npos);
  }
}

TEST_CASE("intervals, tags and order are there for samplers") {
  Report report;
  Sweep sweep = sweep_of({{"k=1", "a=interval(1e-5,1e-3,log=true)", "b=int(interval(2,9))",
                           "c=tag(t1,t2,t1,range(3))", "d=tag(log,interval(1,2))"},
                          ""},
                         report);
  REQUIRE(report.ok());
  REQUIRE(sweep.dimensions.size() == 4);
  CHECK_FALSE(sweep.trials().has_value());
  const SweepDimension& a = sweep.dimensions[0];
  REQUIRE(a.interval.has_value());
  CHECK(a.interval->low == 1e-5);
  CHECK(a.interval->high == 1e-3);
  CHECK(a.interval->log);
  CHECK_FALSE(a.interval->integer);
  CHECK(sweep.dimensions[1].interval->integer);
  CHECK(sweep.dimensions[2].tags == std::vector<std::string>{"t1", "t2"});
  CHECK(sweep.dimensions[2].ordered);
  CHECK(sweep.dimensions[3].interval->log);
  auto point = sweep_point(sweep, {{"1e-4"}, {"3"}, {"0"}, {"1.5"}});
  std::vector<std::string> texts;
  for (const auto& text : point) texts.push_back(text.text);
  CHECK(texts == std::vector<std::string>{"k=1", "a=1e-4", "b=3", "c=0", "d=1.5"});
}

TEST_CASE("every value of a sweep reads back as itself") {
  for (const char* yaml :
       {"[1, 0x10, 1e5, .inf, -.inf, .nan, +3, -0.5]", "[true, null, '', 'null', '1', '4k', 4k]",
        "['a b', ' a ', 'a,b', 'f(x)', \"it's\", 'back\\\\', \"q'\\\\'\", 'épée', '${a}']",
        "[[], {}, [1, [x, 'y z']], {a: {'b c': [1]}}, {'1': null}]"}) {
    Node list = parse_yaml(yaml);
    for (const auto& node : list.items()) {
      std::string text = override_value_text(node);
      CAPTURE(text);
      Report report;
      auto read = parse_override({"k=" + text, 1}, report);
      CAPTURE(report.text());
      REQUIRE(read.has_value());
      REQUIRE(read->value.has_value());
      if (node.is(NodeKind::integer))
        CHECK(read->value->as_int() == node.as_int());
      else if (node.is(NodeKind::number))
        CHECK(write_flow(*read->value).substr(0, 3) == write_flow(node).substr(0, 3));
      else
        CHECK(read->value->same_value(node));
    }
  }
}

TEST_CASE("numbers and commas for a text are one value or several: the sweep asks") {
  for (const Row& row : {
           Row{{"text=90,10,0"}, "'90,10,0' may be one text or several values"},
           Row{{"text=90,10,0"}, "write \"text='90,10,0'\""},
           Row{{"+text=0.5,1e-3"}, "'+text=choice(0.5,1e-3)'"},
           Row{{}, "r.yaml:1:8", "{text: '9,1'}"},
       }) {
    const std::string said = trials_of(row);
    CHECK_MESSAGE(said.find("error[sweep]") != std::string::npos, said);
    CHECK_MESSAGE(said.find(row.trials) != std::string::npos, said);
  }
  CHECK(trials_of({{"text='90,10,0'"}, ""}) == "text='90,10,0'");
  CHECK(trials_of({{"text='90,10','80,20'"}, ""}) == "text='90,10'; text='80,20'");
  CHECK(trials_of({{"text=choice(90,10)"}, ""}) == "text=90; text=10");
  CHECK(trials_of({{"text=a,b"}, ""}) == "text=a; text=b");
  CHECK(trials_of({{"text=a,1"}, ""}) == "text=a; text=1");
  CHECK(trials_of({{"number=1,2"}, ""}) == "number=1; number=2");
}
