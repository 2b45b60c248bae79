# `cpack --config build/CPackConfig.cmake` makes a package for Debian or Ubuntu of what `cmake --install` puts in place.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME dtc)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "ahead-of-time compiler for programs that train neural networks")
set(CPACK_PACKAGE_DESCRIPTION "dtc compiles a model, written in index notation, into one standalone program that
trains it, on one rank or on many. The program is native code and needs no framework at run time.")
set(CPACK_PACKAGE_CONTACT "the authors of dtc <dtc@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
# dtc calls the C compiler, and links the runtime's libraries into programs: no tool that reads binaries finds that out.
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE GLIBC OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX REPLACE ".* " "" GLIBC "${GLIBC}")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "gcc | c-compiler, libc6-dev, libc6 (>= ${GLIBC}), libllvm19")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin | mpich")
include(CPack)
