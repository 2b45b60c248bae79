# Each rank of a machine takes a GPU, and the log, --dry-run and --info say which. More ranks than GPUs are refused, by one
# rank, unless sharing is asked for; and launchers may show each rank all of them. The emulated driver, as NVIDIA's, cannot
# be used by a process that was started after it.
. "$(dirname "$0")/../support/lib.sh"
command -v c++ >/dev/null || { echo "no C++ compiler"; exit 77; }
tokens train.bin 2000 97
expect 0 "$DTC" "$SRC/examples/gpt2.dt" "${SMALL_GPT2[@]}" --tp 2 --target cuda --emulate -o train
run() { expect "$1" ./train --data train.bin --steps 1 --threads 1 "${@:2}"; }

run 0 --ranks 4 --log log.jsonl
says ', 4 ranks of 1 thread, the first on GPU 0 \(emulated GPU\)' out.txt
says '"devices":\["GPU 0 \(emulated GPU\)","GPU 1 \(emulated GPU\)","GPU 2 \(emulated GPU\)","GPU 3 \(emulated GPU\)"\]' log.jsonl
run 0 --info --ranks 2
says '"devices":\[{"local_rank":0,"name":"GPU 0 \(emulated GPU\)"},{"local_rank":1,"name":"GPU 1 ' out.txt

DT_EMULATE_GPUS=3 run 78 --ranks 4
says "^train: error: ranks 0 and 3 would share GPU 0 \(emulated GPU\): their machine has 4 ranks and shows them 3 devices" err.txt
[ "$(wc -l <err.txt)" = 1 ] || fail "it is said more than once"
DT_DEVICE_SHARE=1 DT_EMULATE_GPUS=3 run 0 --ranks 4 --dry-run
says 'rank 3: GPU 0 ' out.txt
DT_DEVICE_SHARE=1 DT_EMULATE_GPUS=1 run 0 --ranks 4
DT_DEVICE_SHARE=yes run 64 --ranks 4
DT_EMULATE_GPUS=0 run 71 --ranks 2
says "^train: rank 0: error: this machine has no NVIDIA GPU that the driver shows" err.txt
[ "$(wc -l <err.txt)" = 1 ] || fail "it is said more than once"

# As torchrun starts ranks: each sees all GPUs, and takes that of its number on the machine.
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29533
RANK=1 LOCAL_RANK=1 timeout 100 ./train --data train.bin --steps 1 --threads 1 --quiet &
RANK=0 LOCAL_RANK=0 run 0 --log launched.jsonl
wait $! || fail "rank 1"
says '"devices":\["GPU 0 \(emulated GPU\)","GPU 1 ' launched.jsonl
