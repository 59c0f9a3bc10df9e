"""The matching function a second time, in another language.

Reads a JSON list of inputs from standard input and writes the list of their
results to standard output. It follows docs/matching.md, takes the shortest way
to each rule, and shares nothing with the Go package. Inputs must be valid.
"""

import hashlib
import json
import sys

DEFAULTS = {
    "batch_size": 256,
    "priority": {
        "w_fee_ppb": 550_000_000, "w_age_ppb": 250_000_000, "w_size_ppb": 100_000_000, "w_tier_ppb": 100_000_000,
        "fee_ref": 1_000_000, "age_ref_ai_secs": 86_400, "age_ref_quantum_secs": 7_200, "size_ref_bytes": 1_048_576,
        "tiers": {"FREE": 0, "PRO": 300_000_000, "PREMIUM": 600_000_000},
    },
    "eligibility": {"min_health_ppb": 500_000_000, "heartbeat_timeout_secs": 30, "min_stake_ai": 1000, "min_stake_quantum": 5000},
    "quotas": {
        "leases_max_per_provider": 16, "ai_units_per_epoch": 100_000, "quantum_units_per_epoch": 10_000,
        "requester_max": 0, "requester_window_secs": 60,
    },
    "starvation": {"every": 20, "low_fee_max": 100_000},
}


def digest(*fields):
    return hashlib.sha256("|".join(str(f) for f in fields).encode()).hexdigest()


def units_of(job):
    return 1 if job.get("units") is None else job["units"]


def merged(defaults, given):
    out = dict(defaults)
    for key, value in (given or {}).items():
        if isinstance(value, dict):
            out[key] = merged(defaults.get(key, {}), value)
        elif value is not None:
            out[key] = value
    return out


class Round:
    def __init__(self, given):
        get = lambda name, zero: given.get(name) or zero
        self.now, self.matches = get("now", 0), get("match_count", 0)
        self.policy = merged(DEFAULTS, given.get("policy"))
        beacon = get("beacon", "").lower()
        self.seed = digest("AICF|match", given["chain_id"], get("epoch_id", 0), get("block_height", 0), beacon)
        self.jobs = get("jobs", [])
        providers = get("providers", [])
        self.leases = {p["id"]: p.get("leases_active") or 0 for p in providers}
        self.units = {(p["id"], k): p.get(k.lower() + "_units_used") or 0 for p in providers for k in ("AI", "QUANTUM")}
        self.grants = dict(get("requester_grants", {}))
        limits = self.policy["eligibility"]
        alive = [
            p for p in providers
            if p["status"] == "ACTIVE" and self.now < (p.get("attestation_expires_at") or 0)
            and (p.get("health_ppb") or 0) >= limits["min_health_ppb"]
            and self.now - (p.get("last_heartbeat_at") or 0) <= limits["heartbeat_timeout_secs"]
        ]
        self.order = self.shuffled(alive)
        turn = get("rotation", 0) % max(1, len(self.order))
        self.order = self.order[turn:] + self.order[:turn]

    def words(self):
        block = 0
        while True:
            raw = hashlib.sha256(bytes.fromhex(self.seed) + block.to_bytes(8, "big")).digest()
            for at in range(0, 32, 8):
                yield int.from_bytes(raw[at:at + 8], "big")
            block += 1

    def shuffled(self, providers):
        out = sorted(providers, key=lambda p: p["id"].encode())
        words = self.words()
        for i in range(len(out) - 1, 0, -1):
            n = i + 1
            word = next(words)
            while word >= 2**64 - 2**64 % n:
                word = next(words)
            j = word % n
            out[i], out[j] = out[j], out[i]
        return out

    def score(self, job):
        p = self.policy["priority"]
        fee, size = job.get("max_fee") or 0, job.get("size_bytes") or 0
        age = lambda t: p["w_age_ppb"] * t // p["age_ref_" + job["kind"].lower() + "_secs"]
        return (
            p["w_fee_ppb"] * min(fee, p["fee_ref"]) // p["fee_ref"]
            + p["w_size_ppb"] * p["size_ref_bytes"] // (p["size_ref_bytes"] + size)
            + p["w_tier_ppb"] * p["tiers"][job.get("tier") or "FREE"] // 10**9
            - age(job.get("enqueue_ts") or 0) + age(self.now)
        )

    def fits(self, p, job, leases, units, grants):
        kind, spec, quotas = job["kind"], job.get("spec") or {}, self.policy["quotas"]
        has = lambda name: p.get(name) or []
        requester = job.get("requester") or ""
        if kind not in has("capabilities") or (p.get("stake") or 0) < self.policy["eligibility"]["min_stake_" + kind.lower()]:
            return False
        if self.now < ((p.get("cooldown_until") or {}).get(kind) or 0) or p["id"] in (job.get("excluded") or []):
            return False
        if job.get("regions") and (p.get("region") or "") not in job["regions"]:
            return False
        if requester in has("deny") or has("allow") and requester not in has("allow"):
            return False
        if kind == "AI":
            for wanted, offered in (("model", "models"), ("precision", "precisions")):
                if spec.get(wanted) and spec[wanted] not in has(offered):
                    return False
        else:
            if any(g not in has("gates") for g in spec.get("gates") or []):
                return False
            if any((spec.get(d) or 0) > (p.get("max_" + d) or 0) for d in ("depth", "width")):
                return False
        return (
            leases[p["id"]] < quotas["leases_max_per_provider"]
            and units[p["id"], kind] + units_of(job) <= quotas[kind.lower() + "_units_per_epoch"]
            and (not quotas["requester_max"] or grants.get(requester, 0) < quotas["requester_max"])
        )

    def count(self, p, job, leases, units, grants):
        requester = job.get("requester") or ""
        leases[p["id"]] += 1
        units[p["id"], job["kind"]] += units_of(job)
        grants[requester] = grants.get(requester, 0) + 1

    def plan(self, group):
        plan, copies = {}, (dict(self.leases), dict(self.units), dict(self.grants))
        for p in self.order:
            for job in sorted(group, key=lambda j: digest(j["id"], p["id"], self.seed)):
                if job["id"] not in plan and self.fits(p, job, *copies):
                    plan[job["id"]] = p
                    self.count(p, job, *copies)
        return plan

    def run(self):
        live = (self.leases, self.units, self.grants)
        place = lambda j: (-self.score(j), j.get("enqueue_ts") or 0, j["id"].encode())
        queue = sorted(self.jobs, key=place)
        every, low = self.policy["starvation"]["every"], self.policy["starvation"]["low_fee_max"]
        budget = self.policy["batch_size"]
        lane = sorted((j for j in self.jobs if (j.get("max_fee") or 0) <= low), key=lambda j: place(j)[1:])[:budget]
        assignments, requeued = [], []

        def assign(job, p):
            self.count(p, job, *live)
            attempt = job.get("attempt") or 0
            assignments.append({
                "job_id": job["id"], "provider_id": p["id"], "attempt": attempt, "score_ppb": self.score(job),
                "lease_id": digest("AICF|lease", job["id"], p["id"], attempt, self.seed),
            })

        def from_lane():
            for job in lane:
                for p in self.order if job in queue else []:
                    if self.fits(p, job, *live):
                        return job, p
            return None

        while budget > 0 and queue:
            group = [j for j in queue if place(j)[:2] == place(queue[0])[:2]][:budget]
            plan = self.plan(group)
            for job in group:
                due = every > 0 and (self.matches + len(assignments) + 1) % every == 0
                found = from_lane() if due else None
                if found:
                    queue.remove(found[0])
                    budget -= 1
                    assign(*found)
                    break
                queue.remove(job)
                budget -= 1
                if job["id"] in plan:
                    assign(job, plan[job["id"]])
                else:
                    requeued.append(job["id"])
        return {"seed": self.seed, "order": [p["id"] for p in self.order], "assignments": assignments, "requeued": requeued}


if __name__ == "__main__":
    inputs = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    json.dump([Round(given).run() for given in inputs], sys.stdout)
