# Writes OUT, which names the commit that SOURCE is at, when it is another than before: `cmake -DSOURCE= -DOUT= -P`.
# Only `dtc --version` reads it: what dtc compiles does not depend on the commit.
find_program(GIT git)
set(commit "")
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty=+ --abbrev=12 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
  set(commit "unknown")
endif()
set(text "#define DTC_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUT} "${text}")
endif()
