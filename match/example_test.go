package match_test

import (
	"fmt"

	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/match"
)

// One round: three jobs and two providers, one of which has room for only one job.
func ExampleMatch() {
	in, err := match.Decode([]byte(`{
		"chain_id": "testnet-1", "epoch_id": 42, "block_height": 1000, "beacon": "00ff10", "now": 1700000000,
		"providers": [
			{"id": "oslo", "status": "ACTIVE", "capabilities": ["AI"], "models": ["small", "large"], "stake": 1000,
			 "attestation_expires_at": 1800000000, "health_ppb": 1000000000, "last_heartbeat_at": 1699999990, "leases_active": 15},
			{"id": "bern", "status": "ACTIVE", "capabilities": ["AI"], "models": ["small"], "stake": 1000,
			 "attestation_expires_at": 1800000000, "health_ppb": 1000000000, "last_heartbeat_at": 1699999995}],
		"jobs": [
			{"id": "a", "kind": "AI", "spec": {"model": "small"}, "max_fee": 10, "enqueue_ts": 1699999000},
			{"id": "b", "kind": "AI", "spec": {"model": "large"}, "max_fee": 500000, "enqueue_ts": 1699999900},
			{"id": "c", "kind": "AI", "spec": {"model": "large"}, "tier": "PRO", "enqueue_ts": 1699999950}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := match.Match(&in)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("asked in the order", out.Order)
	for _, a := range out.Assignments {
		fmt.Printf("%s to %s, score %d, lease %.8s…\n", a.Job, a.Provider, a.Score, a.Lease)
	}
	fmt.Println("back in the queue", out.Requeued)
	// Output:
	// asked in the order [bern oslo]
	// b to oslo, score 375289352, lease d7bfb0b6…
	// a to bern, score 102899019, lease cef14e17…
	// back in the queue [c]
}

// Decoding reports all faults at once.
func ExampleDecode() {
	_, err := match.Decode([]byte(`{"chain_id": "a|b", "now": 1.5, "jobs": [{"id": "j", "kind": "GPU", "priority": 3}]}`))
	for _, fault := range errs.FaultsOf(err) {
		fmt.Println(fault)
	}
	// Output:
	// now: 1.5 is not a plain integer
	// jobs[0].kind: "GPU" is not one of [AI QUANTUM]
	// jobs[0].priority: is not a known member
	// chain_id: "a|b" contains '|', which an id must not
}

func ExampleExplain() {
	in := match.Input{
		Now: 1700000000, Policy: match.DefaultPolicy(),
		Providers: []match.Provider{
			{
				ID: "oslo", Status: match.Active, Capabilities: []match.Kind{match.AI}, Stake: 1000, Health: 1e9,
				AttestationExpiresAt: 1800000000, LastHeartbeatAt: 1700000000,
			},
			{ID: "bern", Status: match.Jailed, Capabilities: []match.Kind{match.Quantum}, Health: 1e9, AttestationExpiresAt: 1800000000},
		},
		Jobs: []match.Job{{ID: "j", Kind: match.AI}},
	}
	verdicts, err := match.Explain(&in, "j")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range verdicts {
		fmt.Println(v.Provider, v.Reasons)
	}
	// Output:
	// oslo []
	// bern [not_active silent incapable understaked]
}

func ExampleSeed_Lease() {
	seed := match.NewSeed("testnet-1", 42, 1000, []byte{0x00, 0xff, 0x10})
	fmt.Println(seed.Lease("job-0001", "p3", 0))
	// Output:
	// 266e00744d271d350ad0dcf635c6762bc33f8fc352fd9f95245c30cb67c4e97f
}
