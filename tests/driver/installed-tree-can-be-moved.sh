# What `cmake --install` leaves works from any folder: dtc finds its stdlib and runtime beside itself.
. "$(dirname "$0")/../support/lib.sh"
rm -rf one two
cmake --install "$BUILD" --prefix "$PWD/one" >/dev/null
mv one two
text 2000 >text.txt
two/bin/dtc two/share/dtc/examples/chargpt.dt "${SMALL_CHARGPT[@]}" --save-temps temps -o train
says "^DTC .= $PWD/two$" temps/Makefile
./train --data text.txt --steps 2 --quiet
