# How gemmd's targets are made: one flag set, includes from the repository root, headers that
# compile alone.

add_library(gemmd_flags INTERFACE)
target_include_directories(gemmd_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_link_libraries(gemmd_flags INTERFACE Threads::Threads)
set(cxx_only $<COMPILE_LANGUAGE:CXX>)
set(cuda_only $<COMPILE_LANGUAGE:CUDA>)
target_compile_options(gemmd_flags INTERFACE
  $<${cxx_only}:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual>
  $<$<AND:${cxx_only},$<CXX_COMPILER_ID:Clang>>:-Wthread-safety>
  $<${cuda_only}:-Xcompiler=-Wall,-Wextra -Xptxas=-v>)
# GCC 12 sees overlaps in std::string's operator+ that are not there (its bug 105651).
target_compile_options(gemmd_flags INTERFACE
  $<$<AND:${cxx_only},$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  # In a source alone: clang-tidy takes sources for headers, in which such a constant is not unused.
  $<$<AND:${cxx_only},$<CXX_COMPILER_ID:GNU>>:-Wunused-const-variable=1>
  # A note on every value of 128-byte alignment: nothing here crosses to code of another compiler.
  $<$<AND:${cxx_only},$<CXX_COMPILER_ID:GNU>>:-Wno-psabi>)
if(GEMMD_WERROR)
  target_compile_options(gemmd_flags INTERFACE
    $<${cxx_only}:-Werror>
    $<${cuda_only}:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
if(GEMMD_SANITIZE)
  target_compile_options(gemmd_flags INTERFACE
    $<${cxx_only}:-fsanitize=${GEMMD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  # What a sanitizer inserts hides from GCC that a value is set; the other builds keep this warning.
  target_compile_options(gemmd_flags INTERFACE
    $<$<AND:${cxx_only},$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
  target_link_options(gemmd_flags INTERFACE -fsanitize=${GEMMD_SANITIZE})
endif()

# gemmd_library(NAME SOURCES a.cc... HEADERS a.h... DEPENDS targets... PRIVATE_DEPENDS targets...)
# DEPENDS are those that its headers show; PRIVATE_DEPENDS stay inside.
function(gemmd_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${name} PRIVATE ${ARG_PRIVATE_DEPENDS})
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${name} ${scope} gemmd_flags ${ARG_DEPENDS})
  target_sources(${name} ${scope} FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR} FILES ${ARG_HEADERS})
  set_target_properties(${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# gemmd_test(NAME SOURCES a_test.cc... DEPENDS targets... LABELS unit [TIMEOUT seconds]
#   [SINGLE_THREADED])
# A GoogleTest program; each of its tests is a ctest test that carries LABELS. One that starts no
# threads has nothing to show to the thread sanitizer, whose build leaves it out; builds that are not unity
# builds refuse a SINGLE_THREADED program that can start one.
function(gemmd_test name)
  cmake_parse_arguments(ARG "SINGLE_THREADED" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(ARG_SINGLE_THREADED AND GEMMD_SANITIZE STREQUAL "thread")
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE gemmd_flags ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  # In a unity build a library is one object, all of which is linked.
  if(ARG_SINGLE_THREADED AND NOT CMAKE_UNITY_BUILD)
    add_custom_command(TARGET ${name} POST_BUILD
      COMMAND ${CMAKE_SOURCE_DIR}/deploy/cmake/single_threaded.sh ${CMAKE_NM} $<TARGET_FILE:${name}>
      VERBATIM)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
