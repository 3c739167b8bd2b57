"""The inputs of the conformance tables. A pair (input, (reason, ours)) differs from Hydra on purpose."""

A = "1.10 (a): characters without a token make an unquoted value text"
ERROR = {"error": True}
BLANKS = "wider: blanks behind a bracket or quote are trimmed too"
KINDS = "a list and a map replace one another; the schema says which is right"
AS_YAML = "inside a text a value stands as YAML writes it, not as Python does"
QUOTED = "a text stays a text in every trial"


def text(value, key="k", sign=""):
    return {"key": key, "sign": sign, "value": value}


GROUPS = {"db": ["mysql", "pg", "sqlite"], "server/db": ["mysql", "sqlite"]}

OVERRIDES = {
    "1.5 override: key = value": ["k=1", "+k=1", "++k=1", "~k", "~k=1", "a.b.c=1", "k=", "+k=", ("k = 1", ("wider: blanks beside the key", text(1))), "a/b=c", "a/b@c=d", "a@b.c=d", "~a/b", "~a/b@c", "$k=1", "a.$b=1", "a.0=1", "k", ("=1", ("an empty key names nothing", ERROR)), ("+=1", ("an empty key names nothing", ERROR))],
    "1.5 INT": ["k=0", "k=-0", "k=+5", "k=-12", "k=1_000", "k=1__0", "k=1_", "k=_1", "k=010", "k=00", "k=0x10", "k=9223372036854775807", "k=1 2"],
    "1.5 FLOAT": ["k=1.", "k=.5", "k=-.5", "k=1e-1", "k=1E5", "k=1e+5", "k=1_0.5", "k=1.5_0", "k=1e1_0", "k=inf", "k=-inf", "k=+INF", "k=nan", "k=NaN", "k=-nan", "k=1.2.3", "k=1e", "k=e1", "k=.", "k=..", "k=infinity"],
    "1.5 BOOL and NULL in any case": ["k=true", "k=True", "k=TRUE", "k=tRuE", "k=false", "k=FALSE", "k=null", "k=NULL", "k=Null", "k=nul", "k=yes", "k=no", "k=on", "k=None", "k=truex", "k=true false"],
    "1.5 one token types, several make a text": ["k=abc", "k=a1", "k=1a", "k=a b", "k=1 a", "k=null a", "k=a:b", "k=a:1", "k=1:2", "k=a-b_c", "k=a/b", "k=/a/b", "k=a.b", "k=-", "k=a+b", "k=a$b", "k=50%", "k=*", "k=a@b", "k=a?b", "k=a|b", "k=http://x.y/z", "k=-1-1"],
    "1.5 outer blanks are trimmed, inner kept": ["k= a", "k=a ", "k=  a  b  ", "k= 1 ", "k=[ 1 , 2 ]", "k={ a : 1 }", "k=' a '", ("k= 'a' ", (BLANKS, text("a"))), "k="],
    "1.5 ESC outside of quotes": ["k=a\\,b", "k=\\(", "k=\\)", "k=\\[a\\]", "k=\\{a\\}", "k=a\\:b", "k=a\\=b", "k=\\ a", "k=a\\ ", "k=a\\\\b", "k=\\\\", "k=a\\b", "k=\\,", "k=1\\,5", "k=\\ 1", "k=[a\\,b]", "k={a\\:b: 1}"],
    "1.5 quoted values are texts": ["k=''", 'k=""', "k='1'", "k='true'", "k='null'", "k='a,b'", "k='a=b'", "k='[1]'", "k='{'", "k='it\\'s'", 'k="it\'s"', "k='\"'", "k='a\\\\'", "k='a\\\\b'", "k='\\n'", "k='a\\\\\\'b'", ("k='a", (A, text("'a"))), "k='a'b'", "k='#~&!;'", "k='é'", "k='a' b"],
    "1.5 lists": ["k=[]", "k=[1]", "k=[1,2]", "k=[1,[2,[3]]]", "k=[a b,c]", "k=['a,b',c]", "k=[null,true,1.5]", "k=[{a:1}]", "k=[a:b]", "k=[", "k=]", "k=[1", "k=1]", "k=[1]]", "k=[1,]", "k=[,1]", "k=[1]x", "k=x[1]", ("k=[1] ", (BLANKS, text([1])))],
    "1.5 dicts": ["k={}", "k={a:1}", "k={a: 1, b: x y}", "k={a:{b:{}}}", "k={a:[1,2]}", "k={a b: 1}", "k={1: 2}", "k={a:b:c}", "k={a}", "k={a:}", "k={a:1", "k={a:1}}", "k={a:1,}", "k={:1}", "k={a-b: 1}", "k={a.b: 1}", ("k={'a': 1}", ("wider: a key may be quoted", text([["map"], ["a", 1]]))), ("k={a:1,a:2}", ("a key twice is refused", ERROR)), ("k={null: 1}", ("keys are texts as they are written", text([["map"], ["null", 1]]))), ("k={true: 1}", ("keys are texts as they are written", text([["map"], ["true", 1]])))],
    "1.5 interpolations stay for later": ["k=${a}", "k=${a.b}", "k=x${a}y", "k=${a}${b}", "k=${a:b,c}", "k=[${a},1]", "k={x: ${a}}", "k='${a}'", "k=${.a}", "k=${a:1,[2]}", ("k=${a[${b}]}", ("wider: nested braces need no quotes", text("${a[${b}]}")))],
    "1.5 a character without a token": [("k=epoch=3.ckpt", (A, text("epoch=3.ckpt"))), ("k=a#b", (A, text("a#b"))), ("k=~/data", (A, text("~/data"))), ("k=a&b", (A, text("a&b"))), ("k=a!", (A, text("a!"))), ("k=a;b", (A, text("a;b"))), ("k=é", (A, text("é"))), ("k=don't", (A, text("don't"))), ("k=a^b", (A, text("a^b"))), ("k=a<b>", (A, text("a<b>"))), ("k==", (A, text("="))), ("k=a=[1]", (A, text("a=[1]")))],
    "1.5 casts": ["k=int(1)", "k=int(1.9)", "k=int(-1.9)", "k=int(true)", "k=int('12')", "k=int(' 12 ')", "k=int('010')", "k=int(a)", "k=int('1.5')", "k=int(null)", "k=int(inf)", "k=int([1.5,true])", "k=int({a:1.5,b:[2.5]})", "k=int(value=1.5)", "k=int()", "k=int(1,value=2)", "k=int('1_0')",
                  "k=float(1)", "k=float('1e3')", "k=float(true)", "k=float('inf')", "k=float('nan')", "k=float(a)", "k=float([1,2])", "k=float('.5')", "k=float(1_0)",
                  "k=str(1)", "k=str(1.0)", "k=str(1e5)", "k=str(1e16)", "k=str(1e-5)", "k=str(0.0001)", "k=str(1.5e300)", "k=str(true)", "k=str(inf)", "k=str(nan)", "k=str(a b)", "k=str('a')", "k=str(null)", "k=str([1,[true]])", "k=str({a:1})", "k=str(-0.0)", "k=str(123456789.123)",
                  "k=bool(0)", "k=bool(1)", "k=bool(2.5)", "k=bool(0.0)", "k=bool(True)", "k=bool('FALSE')", "k=bool(a)", "k=bool([0,1])", ("k=bool(null)", ("null has no value to cast", ERROR)), "k=int(float(str(2)))", "k=[int(1.5),str(2)]", "k={a:int(1.5)}", "k=int (1.5)", "k=int( 1.5 )"],
    "1.5 sort": ["k=sort([3,1,2])", "k=sort([b,a])", "k=sort([3,1,2],reverse=true)", "k=sort([1.5,1])", "k=sort([1,a])", "k=sort([])", "k=sort(list=[2,1])", "k=sort(1)", "k=sort(a)", "k=sort()", "k=sort([true,0])", "k=sort([1,2],order=1)"],
    "1.5 several values are a sweep": ["k=1,2", "k=a,[b]", "k=choice(1,2)", "k=range(3)", "k=interval(0,1)", "k=glob(*)", "k=tag(a,choice(1))", "k=int(1.5,2.5)", "k=sort(2,1)", "k=shuffle(1,2)", "k=foo(1)", "k=choice()", "k=choice(choice(1,2))", "k=range()", "k=range(a)", "k=range(1,2,3,4)", "k=interval(1)", "k=interval(a,b)", "k=tag(a)", "k=glob(1)", "k=1,", "k=,1", "k=str(range(3))", "k=str(interval(0,1))", "k=bool(interval(0,1))", "k=Choice(1)", "k=choice(1", "k=choice 1"],
}

SWEEPS = {
    "1.6 the product, the last varies fastest": [["a=1,2"], ["a=1,2", "b=x,y"], ["a=1,2", "b=0", "c=3,4,5"], ["b=0"], ["a=1", "b=2"], ["a=1,2", "b=1,2", "c=1,2"]],
    "1.5 choice": [["a=choice(1)"], ["a=choice(1,2)"], ["a=choice([1],[2,3])"], ["a=choice({x:1},{y:2})"], ["a=choice(a b,'c,d')"], (["a=choice('1',1)"], (QUOTED, [[["a", "1"]], [["a", 1]]])), ["a=[1,2],[3]"], ["a={x:1},{x:2}"], ["a='x,y',z"], ["a=null,1"], ["a=1.5,true,x"], ["a=${x},${y}"], ["a=x\\,y,z"], ["+a=1,2"], ["++a=1,2"], ["db=mysql,pg"], ["server/db@x=mysql,sqlite"]],
    "1.5 range": [["a=range(3)"], ["a=range(1,4)"], ["a=range(0,10,3)"], ["a=range(5,0,-2)"], ["a=range(start=1,stop=3)"], ["a=range(start=2)"], ["a=range(1,stop=4,step=2)"], ["a=range(0,1,0.25)"], ["a=range(1,3.5)"], ["a=range(-2,2)"], ["a=range(0.5,2.5)"], ["a=range(10.0)"], ["a=range(1,2,0)"],
                  ["a=range(0,0.5,0.1)"],
                  (["a=range(3,1)"], ("a range without values is refused", ERROR))],
    "1.5 glob": [["db=glob(*)"], ["db=glob(m*)"], ["db=glob([m*,s*])"], ["db=glob(*,exclude=p*)"], ["db=glob(*,exclude=[p*,m*])"], ["db=glob('?g')"], ["db=glob(include=*sql*)"], ["db=glob('[ps]*')"], ["db=glob('[!p]*')"],
                 (["db=glob(x*)"], ("a glob without options is refused", ERROR)), (["nogroup=glob(*)"], ("glob is for config groups", ERROR))],
    "1.5 casts of sweeps": [["a=int(1.5,2.5)"], (["a=str(1,2)"], (QUOTED, [[["a", "1"]], [["a", "2"]]])), ["a=float(1,2)"], ["a=bool(0,1)"], ["a=int(choice(1.5,2.5))"], ["a=float(range(1,4))"], ["a=int(range(1.0,4.0))"], (["a=str([1,2],[3])"], (QUOTED, [[["a", ["1", "2"]]], [["a", ["3"]]]])), ["a=choice(int(1.5),2)"]],
    "1.5 sort of sweeps": [["a=sort(3,1,2)"], ["a=sort(choice(3,1,2))"], ["a=sort(choice(b,c,a))"], ["a=sort(3,1,2,reverse=true)"], ["a=sort(range(3))"], ["a=sort(range(3,0,-1))"], ["a=sort(range(0,3),reverse=true)"],
                           (["a=sort(range(0,10,3),reverse=true)"], ("the values of the range, reversed", [[["a", 9]], [["a", 6]], [["a", 3]], [["a", 0]]]))],
    "1.5 tag": [["a=tag(t,choice(1,2))"], ["a=tag(t,u,range(2))"], ["a=tag(sort(2,1))"], ["a=sort(tag(t,choice(2,1)))"]],
    "1.6 an interval has no values": [["a=interval(0,1)"], ["a=1,2", "b=interval(0,1)"]],
}

LIBRARY = {
    "db/mysql.yaml": "host: my\nuser: root\n",
    "db/sqlite.yaml": "host: lite\nfile: x.db\n",
    "db/pg.yaml": "host: pg\n",
    "db/nested/deep.yaml": "host: deep\n",
    "db/tuned.yaml": "defaults:\n- mysql\n- _self_\nuser: tuned\n",
    "db/first.yaml": "defaults:\n- _self_\n- mysql\nuser: first\n",
    "server/apache.yaml": "defaults:\n- db: mysql\nport: 80\n",
    "server/nginx.yaml": "port: 81\n",
    "server/over.yaml": "defaults:\n- db: mysql\n- override db: sqlite\nport: 82\n",
    "server/db/mysql.yaml": "kind: server-mysql\n",
    "server/db/sqlite.yaml": "kind: server-sqlite\n",
    "g/absolute.yaml": "defaults:\n- /server/db: mysql\n",
    "g/here.yaml": "defaults:\n- /server/db@_here_: mysql\n",
    "g/global.yaml": "defaults:\n- /server/db@_global_.foo: mysql\n",
    "g/globalroot.yaml": "defaults:\n- /server/db@_global_: mysql\nv: 1\n",
    "g/header.yaml": "# @package x.w\nv: 1\n",
    "g/header_global.yaml": "# comment\n# @package _global_\nv: 1\n",
    "g/late.yaml": "v: 1\n# @package x.w\n",
    "g/two.yaml": "defaults:\n- /db@one: mysql\n- /db@two: pg\nv: 2\n",
    "g/backup.yaml": "defaults:\n- /db@backup: mysql\nv: 3\n",
    "exp/a.yaml": "# @package _global_\ndefaults:\n- override /db: pg\nlr: 5\n",
    "exp/b.yaml": "# @package _global_\nlr: 6\n",
    "exp/nested.yaml": "# @package _global_\ndefaults:\n- a\n- override /db: sqlite\nlr: 7\n",
    "exp/server.yaml": "# @package _global_\ndefaults:\n- override /server/db@server.db: sqlite\n",
    "mix/mysql_apache.yaml": "mixed: true\n",
    "mix/pg_apache.yaml": "mixed: pg\n",
    "mix/over.yaml": "defaults:\n- override /db: pg\n",
    "common.yaml": "shared: 1\ndb: {host: common}\n",
    "lists.yaml": "l: [1, 2]\nm: {a: [1]}\n",
}


def recipe(body, *overrides):
    return {"recipe": body, "overrides": list(overrides)}


DB = "defaults:\n- db: mysql\n"
TWO = "defaults:\n- db: mysql\n- server: apache\n"
SCHEMA = "the schema says whether a key is one, not the composed tree"

COMPOSITION = {
    "1.2 _self_ rule": [recipe("defaults:\n- db: mysql\ndb: {host: b}\n"), recipe("defaults:\n- _self_\n- db: mysql\ndb: {host: b}\n"), recipe("defaults:\n- db: mysql\n- _self_\ndb: {host: b}\n"), recipe("defaults:\n- _self_\n- db: mysql\n- _self_\n"), recipe("defaults: []\na: 1\n"), recipe("a: 1\n"), recipe("defaults:\n- common\nshared: 2\n"), recipe("defaults:\n- _self_\n- common\nshared: 2\n"), recipe("defaults:\n- common\n- db: mysql\n"), recipe("defaults:\n- db: mysql\n- common\n"), recipe("defaults:\n- db: tuned\n"), recipe("defaults:\n- db: first\n"), recipe("defaults:\n- _self_@x\na: 1\n")],
    "1.2 later wins; dicts merge, lists and scalars replace": [recipe("defaults:\n- lists\nl: [3]\n"), recipe("defaults:\n- lists\nm: {a: [2], b: 1}\n"), recipe("defaults:\n- lists\nm: 3\n"), (recipe("defaults:\n- lists\nl: {a: 1}\n"), (KINDS, [["map"], ["l", [["map"], ["a", 1]]], ["m", [["map"], ["a", [1]]]]])), recipe("defaults:\n- lists\nl: null\n"), recipe("defaults:\n- _self_\n- lists\nl: [3]\nz: 1\n"), recipe("defaults:\n- lists\nm: ???\n")],
    "1.2 entries of the defaults list": [recipe("defaults:\n- server/apache\n"), recipe("defaults:\n- server: apache\n"), recipe("defaults:\n- server/db: sqlite\n"), recipe("defaults:\n- /server/db: sqlite\n"), recipe("defaults:\n- db@x: mysql\n"), recipe("defaults:\n- db@x.y: mysql\n"), recipe("defaults:\n- server/apache@admin\n"), recipe("defaults:\n- db: null\na: 1\n"), recipe("defaults:\n- db: ???\n"), recipe("defaults:\n- optional db: nope\na: 1\n"), recipe("defaults:\n- db: nope\n"), recipe("defaults:\n- nope\n"), recipe("defaults:\n- optional nope: x\na: 1\n"), recipe("defaults:\n- db: [mysql, sqlite]\n"), recipe("defaults:\n- db: []\na: 1\n"), recipe("defaults:\n- nogroup: x\n"), recipe("defaults: 3\n"),
                                          (recipe("defaults:\n- db: nested/deep\n"), ("1.2: folders of an option move to its group, as in Hydra 1.4", [["map"], ["db", [["map"], ["nested", [["map"], ["host", "deep"]]]]]])), recipe("defaults:\n- db/nested/deep\n"), recipe("defaults:\n- db/nested: deep\n")],
    "1.2 a group twice": [recipe("defaults:\n- db: mysql\n- db: sqlite\n"), recipe("defaults:\n- db@a: mysql\n- db@b: sqlite\n"), recipe("defaults:\n- db: mysql\n- db@b: mysql\n"), recipe("defaults:\n- g: two\n"), recipe("defaults:\n- db@a: mysql\n- db@a: sqlite\n")],
    "1.2 override entries": [recipe(TWO + "- override db: sqlite\n"), recipe(TWO + "- override server/db@server.db: sqlite\n"), recipe("defaults:\n- db: mysql\n- override db: pg\n- server: nginx\n"), recipe("defaults:\n- override db: pg\n"), recipe("defaults:\n- db: mysql\n- override server: nginx\n"), recipe("defaults:\n- server: over\n"), recipe("defaults:\n- server: over\n- override server/db@server.db: mysql\n"), recipe("defaults:\n- db: mysql\n- exp: a\n"), recipe("defaults:\n- db: mysql\n- exp: nested\n"), recipe("defaults:\n- exp: a\n- db: mysql\n"), recipe("defaults:\n- server: apache\n- exp: server\n"), recipe("defaults:\n- db: mysql\n- exp: a\n- override db: sqlite\n"), recipe("defaults:\n- db: mysql\n- override db: null\na: 1\n"), recipe("defaults:\n- db: [mysql]\n- override db: pg\n")],
    "1.2 choices from the command line": [recipe(DB, "db=pg"), (recipe(DB, "db=null"), ("wider: null chooses nothing on the command line too", [["map"]])), recipe(DB, "db=nope"), recipe(DB, "db=[pg,sqlite]"), recipe("defaults:\n- db: ???\n", "db=pg"), recipe("defaults:\n- db: null\n", "db=pg"), recipe("a: 1\n", "+db=pg"), recipe("a: 1\n", "db=pg"), recipe(DB, "+db=pg"), recipe(DB, "++db=pg"), recipe("defaults:\n- db@x: mysql\n", "db@x=pg"), recipe("defaults:\n- db@x: mysql\n", "db=pg"), recipe("a: 1\n", "+db@x=pg"), recipe(TWO, "server=nginx"), recipe(TWO, "server/db@server.db=sqlite"), recipe(TWO, "server/db=sqlite"), recipe("a: 1\ndb: {host: body}\n", "+db=pg"), recipe("lr: 1\n" + DB, "+exp=a"), recipe("lr: 1\n" + DB, "+exp=a", "db=sqlite"), recipe(TWO, "server/apache=x"), recipe("defaults:\n- db: [mysql]\n", "db=pg"), recipe(DB, "db=pg", "db=sqlite"), recipe("defaults:\n- db@_global_: mysql\n", "db@_global_=pg"), recipe("defaults:\n- optional db: nope\na: 1\n", "db=pg")],
    "1.2 removing choices": [recipe(TWO, "~db"), recipe(TWO, "~db=mysql"), recipe(TWO, "~db=pg"), recipe(TWO, "~server"), recipe("a: 1\n", "~db"), (recipe("defaults:\n- server/apache\n- db: pg\n", "~server/apache"), ("1.4: ~path removes a config, as in Hydra 1.4", [["map"], ["db", [["map"], ["host", "pg"]]]])), recipe("defaults:\n- db@x: mysql\na: 1\n", "~db@x"), recipe("defaults:\n- db@x: mysql\na: 1\n", "~db")],
    "1.2 interpolated choices": [recipe(TWO + "- mix: ${db}_${server}\n"), recipe(TWO + "- mix: ${db}_${server}\n", "db=pg"), recipe(TWO + "- optional mix: ${db}_${server}\n", "db=sqlite"), recipe(TWO + "- mix: ${db}_${server}\n", "db=sqlite"), recipe("defaults:\n- mix: ${db}_${server}\n- db: mysql\n- server: apache\n"), recipe(TWO + "- mix: ${nope}_x\n"), recipe("defaults:\n- db: mysql\n- server/db: ${db}\n"), recipe("defaults:\n- db@x: mysql\n- server/db: ${db@x}\n")],
    "1.3 packages": [recipe("defaults:\n- g: absolute\n"), recipe("defaults:\n- g: here\n"), recipe("defaults:\n- g: global\n"), recipe("defaults:\n- g: globalroot\n"), recipe("defaults:\n- g: header\n"), recipe("defaults:\n- g@q: header\n"), (recipe("defaults:\n- g: header_global\n"), ("1.2: the header is the whole leading comment, as in Hydra 1.4", [["map"], ["v", 1]])), recipe("defaults:\n- g: late\n"), recipe("defaults:\n- g@_global_: backup\n"), recipe("defaults:\n- g@z: backup\n"), recipe("defaults:\n- db@_global_: mysql\n"), recipe("defaults:\n- db@_global_.a.b: mysql\n"), recipe("defaults:\n- db@_here_: mysql\n"), (recipe("defaults:\n- db@_here_.q: mysql\n"), ("1.3: _here_ may stand before further names, as in Hydra 1.4", [["map"], ["q", [["map"], ["host", "my"], ["user", "root"]]]])), recipe("defaults:\n- server@a: apache\n"), recipe("defaults:\n- server@a.b: apache\n"), recipe("defaults:\n- server@_global_: apache\n"), recipe("defaults:\n- g@a: two\n"), recipe("defaults:\n- server@admin: apache\n- server@site: apache\n"), recipe("defaults:\n- server@admin: apache\n", "server/db@admin.db=sqlite"), recipe("# @package x\na: 1\n")],
    "1.4 values from the command line": [recipe("a: {b: 1}\n", "a.b=2"), recipe("a: {b: 1}\n", "+a.c=2"), recipe("a: {b: 1}\n", "++a.b=2"), recipe("a: {b: 1}\n", "++a.c=2"), recipe("a: {b: 1}\n", "a={b: 2}"), recipe("a: {b: 1, c: 2}\n", "a={b: 5}"), recipe("a: {b: 1}\n", "+a={c: 2}"), recipe("a: [1, 2]\n", "a=[3]"), recipe("a: [1, 2]\n", "a.0=5"), recipe("a: {b: 1, c: 2}\n", "~a.b"), recipe("a: {b: 1}\n", "~a.b=1"), recipe("a: {b: 1}\n", "~a.b=2"), recipe("a: {b: 1}\n", "~a.c"), recipe("a: {b: 1}\n", "~a"), recipe("a: null\n", "+a=1"), recipe("a: ???\n", "+a=1"), recipe("a: 1\n", "a=2", "a=3"), recipe(DB, "db.host=x"), recipe(DB, "db.host=x", "db=pg"), recipe(DB, "db=pg", "db.host=x"), recipe("a: 1\n", "a=[1,{b: 2}]"), recipe("a: 1\n", "a='1'"), recipe("a: 1\n", "a=${b}"), recipe("a: {b: 1}\n", "a=5"), recipe("a: {b: 1}\n", "+b.c.d=1"),
                                         recipe("a: [1]\n", "a.5=1"), recipe("a: 1\n", "+b={}"), recipe("a: 1\n", "+b=[]"), (recipe("a: 1\n", "b=2"), (SCHEMA, [["map"], ["a", 1], ["b", 2]])), (recipe("a: {b: 1}\n", "a.c=2"), (SCHEMA, [["map"], ["a", [["map"], ["b", 1], ["c", 2]]]])), recipe("a: 1\n", "+a=2")],
}

Y = "1.10 (b): YAML 1.2"

INTERPOLATION = {
    "1.7 absolute paths": ["a: 1\nb: ${a}", "a: {b: 2}\nc: ${a.b}", "a: [5, 6]\nb: ${a[1]}", "a: [5, 6]\nb: ${a.0}", "a: {b: 2}\nc: ${[a][b]}", "a: {b: 2}\nc: ${a[b]}", "a: {b: {c: 3}}\nd: ${a.b.c}", "a: [[1], [2]]\nb: ${a[1][0]}", "c: ${b}\nb: ${a}\na: 3", "a: 1\nb: ${nope}", "a: {b: 1}\nc: ${a.x}"],
    "1.7 relative paths": ["m: {a: 2, b: '${.a}'}", "x: 7\nm: {a: '${..x}'}", "x: 7\nm: {n: {a: '${...x}'}}", "m: {x: 7, n: {a: '${..x}'}}", "l: [5, '${.0}']", "m: {l: [1, '${..x}'], x: 3}", "a: 4\nb: ${.a}", "m: {a: {b: 1}, c: '${.a.b}'}"],
    "1.7 a whole value keeps its type, mixed text is a text": ["a: 1\nb: x${a}", "a: true\nb: ${a}", ("a: true\nb: v=${a}", (AS_YAML, [["map"], ["a", True], ["b", "v=true"]])), "a: 1.5\nb: ${a}x", "a: null\nb: ${a}", ("a: null\nb: x${a}", (AS_YAML, [["map"], ["a", None], ["b", "xnull"]])), "a: [1, 2]\nb: ${a}", "a: {x: 1}\nb: ${a}\nc: ${b.x}", "a: 1\nb: ${a}${a}", "a: 1\nb: ' ${a} '", "a: '3'\nb: ${a}", ("a: [1]\nb: x${a}", ("a list or map cannot stand inside a text", ERROR))],
    "1.7 nested interpolations": ["p: {A: pa, B: pb}\ns: A\nc: ${p[${s}]}", "p: {A: pa}\ns: A\nc: ${p.${s}}", "p: {A: pa}\ns: A\nc: ${${k}}\nk: s", "a: b\nb: c\nc: ${${a}}"],
    "1.7 escapes": ["a: 1\nb: '\\${a}'", "a: 1\nb: 'x\\\\${a}'", "a: 1\nb: 'x\\\\\\${a}'", "a: 'C:\\dir'\nb: ${a}", "a: 1\nb: '$a'", "a: 1\nb: '{a}'", "a: 1\nb: '\\${a}${a}'", "a: 1\nb: '$${a}'", "a: 1\nb: 'a}b'"],
    "1.7 cycles": ["a: ${a}", "a: ${b}\nb: ${a}", "a: {b: '${a}'}"],
    "1.7 oc.env": ["a: ${oc.env:CONFORMANCE_TEXT}", "a: ${oc.env:CONFORMANCE_NUMBER}", "a: ${oc.env:CONFORMANCE_NOT_SET}", "a: ${oc.env:CONFORMANCE_NOT_SET,x}", "a: ${oc.env:CONFORMANCE_NOT_SET,10}", "a: ${oc.env:CONFORMANCE_NOT_SET,null}", "a: ${oc.env:CONFORMANCE_NOT_SET,'a, b'}", ("a: ${oc.env:CONFORMANCE_NOT_SET,true}", (AS_YAML, [["map"], ["a", "true"]])), "d: q\na: ${oc.env:CONFORMANCE_NOT_SET,${d}}", "a: x${oc.env:CONFORMANCE_TEXT}y", "a: ${oc.env:}", "a: ${oc.env:CONFORMANCE_NOT_SET,1.5}"],
    "1.7 oc.decode and oc.create": ["a: ${oc.decode:'12'}", "a: ${oc.decode:${oc.env:CONFORMANCE_NUMBER}}", "a: ${oc.decode:'[1, x]'}", "a: ${oc.decode:'{x: 1}'}", "a: ${oc.decode:null}", "a: ${oc.decode:'[1'}", "a: '${oc.create:{x: [1, 2]}}'", "a: '${oc.create:[1, {y: 2}]}'", "a: ${oc.decode:'1e-4'}", "a: ${oc.decode:'true'}"],
    "1.7 oc.select": ["a: ${oc.select:nope}", "a: ${oc.select:nope,7}", "b: 3\na: ${oc.select:b}", "b: 3\na: ${oc.select:b,7}", "b: {c: 4}\na: ${oc.select:b.c}", "b: ???\na: ${oc.select:b,5}", "b: 1\na: ${oc.select:nope,${b}}"],
    "1.7 oc.dict and oc.deprecated": ["m: {x: 1, y: 2}\na: '${oc.dict.keys:m}'", "m: {x: 1, y: 2}\na: '${oc.dict.values:m}'", "m: 3\na: '${oc.dict.keys:m}'", "new: 5\nold: ${oc.deprecated:new}", "old: ${oc.deprecated:nope}"],
    "1.7 faults": ["a: ${", "a: ${a b", "a: ${nope:1}", "a: ${}", "b: ???\na: ${b}", "a: ${b.c}\nb: 3"],
    "1.7 the YAML dialect": ["a: 1e-4", "a: 1e4", "a: 0x10", "a: ~", "a: 'yes'", "a: 2001-01-01", ("a: 1_000", (Y, [["map"], ["a", "1_000"]])), "a: .inf", "a: [1, 2]", "a: {b: c}", "a: 1\na: 2", "a: |\n  x\n", "a: +5", "a: -0.5", "a: 1.", "a: .5",
                             ("a: yes", (Y, [["map"], ["a", "yes"]])), ("a: off", (Y, [["map"], ["a", "off"]])), ("a: 010", (Y + "; a leading zero stays text", [["map"], ["a", "010"]])), ("a: 0b11", (Y, [["map"], ["a", "0b11"]])), ("a: 1_000.5", (Y, [["map"], ["a", "1_000.5"]])), ("a: 1:30", (Y, [["map"], ["a", "1:30"]])), ("b: &x {c: 1}\na:\n  <<: *x", ("1.10: merge keys are refused; composition does their work", ERROR))],
}

MERGING = {
    "1.7 dict into dict": [["a: {b: 1}", "a: {c: 2}"], ["a: {b: 1}", "a: {b: 2}"], ["a: {b: {c: 1}}", "a: {b: {d: 2}}"], ["a: 1", "b: 2"], ["b: 1\na: 1", "a: 2\nc: 3"], ["{}", "a: 1"], ["a: 1", "{}"]],
    "1.7 lists replace": [["a: [1, 2]", "a: [3]"], ["a: [{x: 1}]", "a: [{y: 2}]"], ["a: []", "a: [1]"], ["a: [1]", "a: []"], ["a: {l: [1]}", "a: {l: [2], m: 1}"]],
    "1.7 scalars, null and ???": [["a: 1", "a: 2"], ["a: 1", "a: null"], ["a: null", "a: 1"], ["a: 1", "a: ???"], ["a: ???", "a: 1"], ["a: {b: 1}", "a: null"], ["a: {b: 1}", "a: ???"], ["a: [1]", "a: ???"], ["a: null", "a: {b: 1}"], ["a: ???", "a: {b: 1}"], ["b: 1", "a: ???"]],
    "1.7 kinds replace one another": [["a: 1", "a: {b: 1}"], ["a: {b: 1}", "a: 1"], (["a: [1]", "a: {b: 1}"], (KINDS, [["map"], ["a", [["map"], ["b", 1]]]])), (["a: {b: 1}", "a: [1]"], (KINDS, [["map"], ["a", [1]]])), ["a: x", "a: [1]"], ["a: 1", "a: x"]],
    "1.7 interpolations are stored as they are": [["a: 1", "a: ${b}"], ["a: ${b}", "a: 1"], ["a: {b: 1}", "a: {b: '${c}'}"], ["a: ${b}", "a: ${c}"]],
    "1.7 three in order": [["a: 1", "a: 2", "a: 3"], ["a: {x: 1}", "a: {y: 2}", "a: {x: 3}"], ["a: [1]", "a: null", "a: {z: 1}"]],
}

PATHS = {
    "1.7 key paths": [["a: {b: 1}", "a.b"], ["a: {b: 1}", "a[b]"], ["a: [1, 2]", "a[0]"], ["a: [1, 2]", "a.1"], ["a: [[1], [2]]", "a[1][0]"], ["a: [{b: 3}]", "a[0].b"], ["a: {b: 1}", "a"], ["a: {b: 1}", "a.c"], ["a: {b: 1}", "x"], ["a: {b: {c: 2}}", "[a][b][c]"], ["a: {b: 1}", "a.b.c"], ["a: [1]", "a[5]"], ["a: null", "a"], ["a: {b: 1}", "[a].b"]],
}
