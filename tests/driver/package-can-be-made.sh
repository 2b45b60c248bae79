# cpack makes a Debian package: unpacked, it compiles and trains; `dtc --version` names version, commit and LLVM.
. "$(dirname "$0")/../support/lib.sh"
expect 0 "$DTC" --version
says '^dtc [0-9.]+ \(commit ([0-9a-f]{12}\+?|unknown), LLVM [0-9.]+\)$' out.txt
command -v dpkg-deb >/dev/null || exit 77
rm -rf pack root
cpack --config "$BUILD/CPackConfig.cmake" -B pack >cpack.txt 2>&1 || { cat cpack.txt; fail "cpack"; }
dpkg-deb -f pack/*.deb Package Depends >fields.txt
says '^Package: dtc$' fields.txt
says 'libllvm19' fields.txt
dpkg-deb -x pack/*.deb root
text 2000 >text.txt
root/usr/bin/dtc root/usr/share/dtc/examples/chargpt.dt "${SMALL_CHARGPT[@]}" -o train
./train --data text.txt --steps 2 --quiet
