#!/usr/bin/env bash
# Where the programs and libraries below the given folders look for libraries: absolute folders that nobody but their owner
# writes to, or folders relative to the file ($ORIGIN). An empty or relative entry is the working folder of the user who runs the
# file, and a library that lies there would run.
set -u
breaches=0 files=0
breach() { echo "breach: $*"; breaches=$((breaches + 1)); }

# Without the execute bit a folder counts as absent: nobody can put a file into it either.
judge_entry() {
  local file=$1 entry=$2 place
  case $entry in
    '') breach "$file: an empty entry in its RUNPATH is the working folder" ; return ;;
    '$ORIGIN' | '$ORIGIN/'*) place=$(dirname "$file")${entry#\$ORIGIN} ;;
    /*) place=$entry ;;
    *) breach "$file: the entry '$entry' of its RUNPATH is relative to the working folder" ; return ;;
  esac
  [[ ! -d $place ]] || [[ -z $(find -H "$place" -maxdepth 0 -perm -o=w) ]] || breach "$file: anybody may write to '$entry' of its RUNPATH"
}

judge_file() {
  local file=$1 dynamic line path
  dynamic=$(LC_ALL=C readelf -dW "$file" 2> /dev/null) || return
  files=$((files + 1))
  while read -r line; do
    path=${line#*[}
    path=${path%]*}:
    while [[ -n $path ]]; do
      judge_entry "$file" "${path%%:*}"
      path=${path#*:}
    done
  done < <(grep -E '\((RPATH|RUNPATH)\)' <<< "$dynamic")
}

while read -r file; do judge_file "$file"
done < <(find "$@" -type f \( -perm -u=x -o -name '*.so' -o -name '*.so.*' \) ! -name '*.sh' ! -name '*.py')
echo "$files files, $breaches breaches"
((files > 0 && breaches == 0))
