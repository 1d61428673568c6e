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

echo "1. The operator creates the federation's authority. Its fingerprint goes to every party by another channel."
dpspca ca init authority town
fingerprint=$(dpspca ca show authority --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["authority"])')

enrol() { # ROLE NAME
    mkdir -p "$2"
    dpspca identity request "$2/identity" "dpspca://town/$1/$2" --out "$2.csr" >/dev/null
    dpspca ca sign authority "$2.csr" --out "$2.crt" --expected "dpspca://town/$1/$2" >/dev/null
    dpspca identity install "$2/identity" "$2.crt" --authority "$fingerprint" >/dev/null
    dpspca ca publish authority --out "$2/revoked.pem" >/dev/null
    echo "   $1 $2 is enrolled"
}

echo "2. Every party makes a key, the operator signs it, and the party installs the certificate."
enrol coordinator hub
enrol provider north
enrol provider south
enrol analyst ada

echo "3. The coordinator starts on a free port."
printf 'listen = "127.0.0.1:0"\nidentity = "identity"\nrevocations = "revoked.pem"\n' > hub/settings.toml
dpspca coordinator start --config hub/settings.toml 2> hub.log &
pids+=($!)
until port=$(sed -n 's/.*127\.0\.0\.1:\([1-9][0-9]*\).*/\1/p' hub.log | head -1) && [ -n "$port" ]; do sleep 0.2; done

cat > job.toml <<'JOB'
data_set = "cohort"
unit = "row-add-remove"
norm_bound = 20.0
components = 2
minimum_parties = 2
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
    cat > "$name/settings.toml" <<SETTINGS
coordinator = "127.0.0.1:$port"
identity = "identity"
revocations = "revoked.pem"
policy = "policy.toml"
[data_sets]
cohort = "rows.npy"
SETTINGS
    dpspca provider start --config "$name/settings.toml" 2> "$name.log" &
    pids+=($!)
done
for name in north south; do
    until dpspca health --config "$name/settings.toml" >/dev/null 2>&1; do sleep 0.5; done
    echo "   $name is connected"
done

echo "5. The analyst signs a job and runs it."
printf 'coordinator = "127.0.0.1:%s"\nidentity = "identity"\n' "$port" > ada/settings.toml
dpspca datasets --config ada/settings.toml
dpspca run job.toml --config ada/settings.toml --out model.dpspca --json > result.json
dpspca model show model.dpspca

echo "6. Each steward lists what left the provider, and what is left of the budget."
for name in north south; do
    dpspca outbox --config "$name/settings.toml"
    dpspca budget --config "$name/settings.toml"
    dpspca ledger verify --config "$name/settings.toml"
done
