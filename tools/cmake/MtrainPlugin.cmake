# mtrain_add_plugin(NAME KIND kind SOURCES … [LIBS …]): builds <kind>_<name>.so and, next to it, the sidecar
# <kind>_<name>.json with the schema of its settings. This file is used by this tree and, through find_package(mtrain),
# projects outside it. The files families/*.yaml next to the first source of a model say what Hugging Face folders mean to it;
# they are placed in <kind>_<name>.families next to the library.

function(mtrain_add_plugin name)
  cmake_parse_arguments(ARG "" "KIND" "SOURCES;LIBS" ${ARGN})
  set(kinds model tokenizer dataset objective optimizer backend comm)
  if(NOT ARG_KIND IN_LIST kinds)
    message(FATAL_ERROR "mtrain_add_plugin(${name}): KIND must be one of ${kinds}, got '${ARG_KIND}'")
  endif()
  if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
    message(FATAL_ERROR "mtrain_add_plugin(${name}): a name is lower-case letters, digits and '_'")
  endif()
  if(NOT ARG_SOURCES)
    message(FATAL_ERROR "mtrain_add_plugin(${name}): SOURCES is missing")
  endif()
  set(target plugin_${ARG_KIND}_${name})
  mtrain_add_plugin_library(${target} ${ARG_KIND}_${name} "${ARG_SOURCES}" "${ARG_LIBS}")
  mtrain_write_sidecar(${target})
  list(GET ARG_SOURCES 0 first)
  get_filename_component(families ${first} DIRECTORY)
  get_filename_component(families "${families}/families" ABSOLUTE)
  mtrain_add_families(${ARG_KIND}_${name} ${families} ${target})
  get_property(in_tree GLOBAL PROPERTY MTRAIN_IN_TREE)
  if(in_tree)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/mtrain/plugins
      BUILD_RPATH "$ORIGIN/../.." INSTALL_RPATH "$ORIGIN/../.." BUILD_WITH_INSTALL_RPATH ON)
    install(TARGETS ${target} LIBRARY DESTINATION lib/mtrain/plugins)
    if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
      install(FILES $<TARGET_FILE_DIR:${target}>/${ARG_KIND}_${name}.json DESTINATION lib/mtrain/plugins)
    endif()
  endif()
endfunction()

# Places a folder of families next to the plugins: a link in the build tree, copies where it is installed.
function(mtrain_add_families file folder)
  if(NOT IS_DIRECTORY ${folder})
    return()
  endif()
  get_property(in_tree GLOBAL PROPERTY MTRAIN_IN_TREE)
  if(in_tree)
    set(plugins ${CMAKE_BINARY_DIR}/lib/mtrain/plugins)
    file(MAKE_DIRECTORY ${plugins})
    file(CREATE_LINK ${folder} ${plugins}/${file}.families SYMBOLIC)
    install(DIRECTORY ${folder}/ DESTINATION lib/mtrain/plugins/${file}.families FILES_MATCHING PATTERN "*.yaml")
  else()
    add_custom_command(TARGET ${ARGV2} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink ${folder} $<TARGET_FILE_DIR:${ARGV2}>/${file}.families VERBATIM)
  endif()
endfunction()

# Undefined symbols are errors at link time. clang links the runtime of a sanitizer to executables only, so not in its builds.
function(mtrain_no_undefined target)
  if(NOT (CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND (MT_SANITIZE OR mtrain_SANITIZE)))
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

# Only the library, without its sidecar.
function(mtrain_add_plugin_library target file sources libs)
  add_library(${target} MODULE ${sources})
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX ".so" OUTPUT_NAME ${file}
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON CXX_EXTENSIONS OFF)
  target_link_libraries(${target} PRIVATE mtrain::core ${libs})
  mtrain_no_undefined(${target})
  # The build id identifies the file to which a sidecar belongs, also after strip and a changed RPATH.
  target_link_options(${target} PRIVATE -Wl,--build-id=sha1 -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  get_property(in_tree GLOBAL PROPERTY MTRAIN_IN_TREE)
  if(in_tree)
    target_link_libraries(${target} PRIVATE mtrain_options)
  else()
    target_compile_options(${target} PRIVATE -fno-math-errno -ffp-contract=on)
    if(mtrain_SANITIZE)
      target_compile_options(${target} PRIVATE -fsanitize=${mtrain_SANITIZE} -fno-sanitize-recover=all)
      target_link_options(${target} PRIVATE -fsanitize=${mtrain_SANITIZE})
    endif()
  endif()
endfunction()

# A step after linking in which the mtrain executable writes the schema. `mtrain` runs on the machine that builds, through
# CMAKE_CROSSCOMPILING_EMULATOR where there is one; otherwise the sidecar must be written on the target machine.
function(mtrain_write_sidecar target)
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    message(STATUS "${target}: cross-compiled without an emulator; run `mtrain plugins export-schema FILE.so` on the target machine")
    return()
  endif()
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND mtrain::mtrain --quiet plugins export-schema $<TARGET_FILE:${target}> VERBATIM)
  get_property(in_tree GLOBAL PROPERTY MTRAIN_IN_TREE)
  if(in_tree)
    add_dependencies(${target} mtrain)
  endif()
endfunction()
