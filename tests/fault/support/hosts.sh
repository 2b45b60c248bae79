# Two 'hosts' on this machine: network namespaces named after this process, 10.77.0.1 and 10.77.0.2 joined by a
# virtual link. `on_hosts openmpi|mpich N COMMAND...` runs N ranks on each. Skips the test where that is not allowed.
hosts=(dtc-$$-a dtc-$$-b)
ip netns add "${hosts[0]}" 2>/dev/null || { echo "no right to make network namespaces"; exit 77; }
trap 'for h in "${hosts[@]}"; do ip netns del $h 2>/dev/null || true; done' EXIT
ip netns exec "${hosts[0]}" true 2>/dev/null || { echo "no right to run in network namespaces"; exit 77; }
ip netns add "${hosts[1]}"
ip link add veth0 netns "${hosts[0]}" type veth peer name veth0 netns "${hosts[1]}" || { echo "no virtual links"; exit 77; }
for i in 0 1; do
  ip -n "${hosts[$i]}" addr add 10.77.0.$((i + 1))/24 dev veth0
  ip -n "${hosts[$i]}" link set veth0 up
  ip -n "${hosts[$i]}" link set lo up
done
for h in "${hosts[@]}"; do
  for i in $(seq 100); do
    ip -n "$h" link show veth0 | grep -q 'state UP' && break
    sleep 0.1
  done
done

# As ssh: agent HOST COMMAND...
cat >agent <<END
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1; shift
case \$host in *.1) n=${hosts[0]};; *) n=${hosts[1]};; esac
exec ip netns exec \$n unshare --uts bash -c "hostname \$n; \$*"
END
chmod +x agent
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Bytes that came to the first host over the link so far.
came() { ip netns exec "${hosts[0]}" cat /sys/class/net/veth0/statistics/rx_bytes; }

on_hosts() {
  local mpi=$1 n=$2
  shift 2
  if [ "$mpi" = openmpi ]; then
    ./agent 10.77.0.1 timeout 600 mpirun.openmpi -H 10.77.0.1:$n,10.77.0.2:$n --bind-to none --mca plm_rsh_agent "$PWD/agent" \
      --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
      --mca mpi_yield_when_idle 1 "$@"
  else
    # Memory that processes share does not end at a namespace: UCX, below this MPICH, would go by that.
    UCX_TLS=tcp,self UCX_NET_DEVICES=veth0 ./agent 10.77.0.1 timeout 600 mpirun.mpich -launcher ssh -launcher-exec "$PWD/agent" \
      -hosts 10.77.0.1:$n,10.77.0.2:$n -iface veth0 "$@"
  fi
}
