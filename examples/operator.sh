#!/usr/bin/env bash
# An operator enrols a coordinator, two providers and an analyst, starts the daemons over mutual TLS on this machine, and
# runs a job. Then each steward lists what left. Usage: examples/operator.sh [FOLDER]
#
# In a real federation every party makes its own key where it runs, and the operator signs on a machine without network.
set -euo pipefail
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
umask 077

pids=()
stop() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
}
trap stop EXIT

port() { python3 -c 'import socket; taken = socket.socket(); taken.bind(("127.0.0.1", 0)); print(taken.getsockname()[1])'; }
parties="coordinator-hub provider-north provider-south analyst-ada"

echo "1. The operator writes a study file and creates the federation's authority, with an invitation for each party."
cat > study.toml <<STUDY
federation = "town"
coordinator = "hub"
address = "127.0.0.1:$(port)"
mailbox = "127.0.0.1:$(port)"
providers = ["north", "south"]
analysts = ["ada"]
STUDY
dpspca study init study.toml

echo "2. Every party makes a key and asks for a certificate; the operator signs all of them together."
joins=()
for party in $parties; do
    dpspca join "authority/invitations/$party.invitation" --folder "${party#*-}" > "$party.log" 2>&1 &
    joins+=($!)
done
until [ "$(find hub/mailbox -name '*.request' 2>/dev/null | wc -l)" = 4 ]; do sleep 0.2; done
dpspca study sign --yes
wait "${joins[@]}"

echo "3. The coordinator starts."
dpspca coordinator start --config hub/coordinator.toml 2> hub.log &
pids+=($!)
until grep -q "listening on" hub.log; do sleep 0.2; done

cat > job.toml <<'JOB'
data_set = "cohort"
unit = "row-add-remove"
norm_bound = 20.0
components = 2
centering = "none"
minimum_providers = 2
answer_seconds = 60
[schema]
dimension = 40
[budget]
epsilon = 1.0
delta = 1e-6
[options]
sparsity = 8
JOB

echo "4. Each provider gets rows and a policy, and connects to the coordinator."
for name in north south; do
    python3 - "$name" <<'ROWS'
import sys

import numpy as np

rng = np.random.default_rng()
rows = rng.standard_normal((20_000, 40))
rows[:, :4] += rng.standard_normal((20_000, 2)) @ [[5, 4, 3, 3], [3, -4, 3, -3]]
np.save(f"{sys.argv[1]}/rows.npy", rows)
ROWS
    dpspca policy suggest job.toml --analyst ada > "$name/policy.toml"
    echo 'cohort = "rows.npy"' >> "$name/provider.toml"
    dpspca provider start --config "$name/provider.toml" 2> "$name.log" &
    pids+=($!)
done
for name in north south; do
    until dpspca health --config "$name/provider.toml" >/dev/null 2>&1; do sleep 0.5; done
    echo "   $name is connected"
done

echo "5. The analyst signs a job and runs it."
dpspca datasets --config ada/analyst.toml
dpspca run job.toml --config ada/analyst.toml --out model.dpspca --json > result.json
dpspca model show model.dpspca

echo "6. Each steward lists what left the provider, and what is left of the budget."
for name in north south; do
    dpspca outbox --config "$name/provider.toml"
    dpspca budget --config "$name/provider.toml"
    dpspca ledger verify --config "$name/provider.toml"
done
