# --dump-after prints, and leaves an older ./train alone; with -o, or --save-temps, it links as well.
. "$(dirname "$0")/../support/lib.sh"
MLP=$SRC/examples/mlp.dt
echo old >train
cp train old
expect 0 "$DTC" "$MLP" --dump-after simplify,batch
says '^# after simplify' out.txt
same train old
expect 0 "$DTC" "$MLP" --tp 2 --dump-after all
says '^# after localise' out.txt
same train old
expect 0 "$DTC" "$MLP" --dump-after simplify -o program
says '^# after simplify' out.txt
expect 0 ./program --version
