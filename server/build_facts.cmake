# Writes OUTPUT, the source file that knows what was built, when what it says has changed.
#   cmake -DOUTPUT=file -DSOURCE_DIR=dir -DVERSION=1.2.3 -DBUILD_TYPE=Release -P build_facts.cmake
execute_process(
  COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  set(revision "unknown revision")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "server/server.h"

gemmd::BuildFacts gemmd::ThisBuild() { return {"@VERSION@", "@revision@", "@BUILD_TYPE@"}; }
]])
