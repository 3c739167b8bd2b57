#!/usr/bin/env bash
# A layer includes only itself and the layers it depends on (mt_layer in mtrain/CMakeLists.txt), and every "mtrain/…" that any
# file includes is there: an editor finds it in a fresh clone, without a build. Prints every breach; fails on any.
set -u
cd "$1" || exit 2
grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"mtrain/' mtrain plugins tools tests \
  --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' |
  awk -F'[:"]' '
    # mt_layer(NAME [OPTIMIZE n] DEPS a b LIBS …)
    FILENAME ~ /CMakeLists/ {
      sub(/ OPTIMIZE [0-9]/, "")
      if (!match($0, /^mt_layer\([A-Za-z_ ]+/)) next
      count = split(substr($0, RSTART + 9, RLENGTH - 9), words, " ")
      name = words[1]; known[name] = may[name, name] = 1; layers++
      for (i = 3; words[2] == "DEPS" && i <= count && words[i] != "LIBS"; i++) {
        if (!(words[i] in known)) { print "breach: " name " depends on " words[i] ", which is no layer below it"; bad++ }
        for (other in known) if ((words[i], other) in may) may[name, other] = 1
      }
      next
    }
    {
      includes++
      header = $4
      if (header != "mtrain/plugin/abi_hash.h" && (getline line < header) < 0) {
        print "breach: " $1 ":" $2 ": there is no " header; bad++
      }
      close(header)
      split($1, from, "/"); split(header, to, "/")
      if (from[1] == "mtrain" && !((from[2], to[2]) in may)) {
        print "breach: " $1 ":" $2 ": the layer " from[2] " does not depend on " to[2] " (" header ")"; bad++
      }
    }
    END {
      print layers + 0 " layers, " includes + 0 " includes, " bad + 0 " breaches"
      exit bad > 0 || layers < 10 || includes < 1000
    }' mtrain/CMakeLists.txt -
