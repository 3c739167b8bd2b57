# cmake -DROOT=mtrain -DOUTPUT=abi_hash.h -DVERSION=x -P MtrainAbiHash.cmake: writes the hash of every public header.
# Comment-only lines do not count, so that a changed comment does not make existing plugins incompatible.
file(GLOB_RECURSE headers RELATIVE ${ROOT} ${ROOT}/*.h)
list(FILTER headers EXCLUDE REGEX "^cpu/kernels/")  # plugins cannot include them
list(SORT headers)
set(all "")
foreach(header IN LISTS headers)
  file(READ ${ROOT}/${header} text)
  string(REGEX REPLACE "(^|\n)[ \t]*//[^\n]*" "" text "${text}")
  string(APPEND all "${header}\n${text}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
set(content "// Generated: what the ABI stamp of mtrain/plugin/stamp.h compares.
#pragma once
#define MT_HEADERS_HASH \"${hash}\"
#define MT_VERSION \"${VERSION}\"
")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL content)
  file(WRITE ${OUTPUT} "${content}")
endif()
