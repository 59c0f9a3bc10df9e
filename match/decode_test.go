package match_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/match"
)

func TestDecodeDefaults(t *testing.T) {
	for _, text := range []string{
		`{"chain_id":"c"}`,
		` {"chain_id" : "c", "policy":null, "providers":[], "jobs":null, "beacon":"" , "requester_grants":{}} `,
		`{"chain_id":"c","policy":{"batch_size":null,"priority":null,"eligibility":{},"quotas":{"requester_max":null}}}`,
		`{"chain_id":"c","policy":{"priority":{"tiers":{}},"starvation":{}},"epoch_id":-0}`,
		`{"\u0063hain_id":"\u0063"}`,
	} {
		in, err := match.Decode([]byte(text))
		if want := (match.Input{Chain: "c", Policy: match.DefaultPolicy()}); err != nil || !cmp.Equal(want, in) {
			t.Errorf("%s: %v\n%s", text, err, cmp.Diff(want, in))
		}
	}
}

func TestDecodeEverything(t *testing.T) {
	in, err := match.Decode([]byte(`{
		"chain_id": "kjede-å", "epoch_id": 9007199254740991, "block_height": 2, "beacon": "00Ff", "now": 8589934591,
		"match_count": 3, "rotation": 4, "requester_grants": {"r": 5, "": 6},
		"policy": {
			"batch_size": 7,
			"priority": {"w_fee_ppb": 1, "w_age_ppb": 2, "w_size_ppb": 3, "w_tier_ppb": 4, "fee_ref": 5, "age_ref_ai_secs": 6, "age_ref_quantum_secs": 66, "size_ref_bytes": 7, "tiers": {"PRO": 8, "GOLD": 9}},
			"eligibility": {"min_health_ppb": 10, "heartbeat_timeout_secs": 11, "min_stake_ai": 12, "min_stake_quantum": 13},
			"quotas": {"leases_max_per_provider": 14, "ai_units_per_epoch": 15, "quantum_units_per_epoch": 16, "requester_max": 17, "requester_window_secs": 18},
			"starvation": {"every": 19, "low_fee_max": 20}},
		"providers": [{"id": "p", "status": "RETIRED", "capabilities": ["QUANTUM", "AI"], "models": ["m", ""], "precisions": ["f"], "gates": ["g"],
			"max_depth": 21, "max_width": 22, "region": "eu", "allow": ["a"], "deny": ["d"], "stake": 23, "attestation_expires_at": 24, "health_ppb": 25,
			"last_heartbeat_at": 26, "cooldown_until": {"AI": 27, "QUANTUM": 28}, "leases_active": 29, "ai_units_used": 30, "quantum_units_used": 31}],
		"jobs": [{"id": "j\ud83d\ude00\"", "kind": "QUANTUM", "spec": {"model": "m", "precision": "f", "gates": ["g"], "depth": 32, "width": 33},
			"requester": "r\u0000", "tier": "GOLD", "max_fee": 34, "enqueue_ts": 35, "size_bytes": 36, "units": 37, "attempt": 38, "regions": ["eu"], "excluded": ["p", "q"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := match.Input{
		Chain: "kjede-å", Epoch: 9007199254740991, Height: 2, Beacon: match.Hex{0, 0xff}, Now: 8589934591,
		Matches: 3, Rotation: 4, Grants: map[string]int64{"r": 5, "": 6},
		Policy: match.Policy{
			BatchSize: 7,
			Priority: match.Priority{
				FeeWeight: 1, AgeWeight: 2, SizeWeight: 3, TierWeight: 4, FeeRef: 5, AgeRefAI: 6, AgeRefQuantum: 66, SizeRef: 7,
				Tiers: map[string]int64{"FREE": 0, "PRO": 8, "PREMIUM": 600_000_000, "GOLD": 9},
			},
			Eligibility: match.Eligibility{MinHealth: 10, HeartbeatTimeout: 11, MinStakeAI: 12, MinStakeQuantum: 13},
			Quotas:      match.Quotas{LeasesMax: 14, AIUnitsPerEpoch: 15, QuantumUnitsPerEpoch: 16, RequesterMax: 17, RequesterWindow: 18},
			Starvation:  match.Starvation{Every: 19, LowFeeMax: 20},
		},
		Providers: []match.Provider{{
			ID: "p", Status: match.Retired, Capabilities: []match.Kind{match.Quantum, match.AI}, Models: []string{"m", ""}, Precisions: []string{"f"},
			Gates: []string{"g"}, MaxDepth: 21, MaxWidth: 22, Region: "eu", Allow: []string{"a"}, Deny: []string{"d"}, Stake: 23,
			AttestationExpiresAt: 24, Health: 25, LastHeartbeatAt: 26, CooldownUntil: match.Cooldowns{AI: 27, Quantum: 28},
			LeasesActive: 29, AIUnitsUsed: 30, QuantumUnitsUsed: 31,
		}},
		Jobs: []match.Job{{
			ID: "j😀\"", Kind: match.Quantum, Spec: match.Demand{Model: "m", Precision: "f", Gates: []string{"g"}, Depth: 32, Width: 33},
			Requester: "r\x00", Tier: "GOLD", MaxFee: 34, EnqueuedAt: 35, SizeBytes: 36, Units: 37, Attempt: 38, Regions: []string{"eu"}, Excluded: []string{"p", "q"},
		}},
	}
	if diff := cmp.Diff(want, in); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An input can be invalid in many places, and each is reported.
func TestDecodeReportsEveryFault(t *testing.T) {
	for _, test := range []struct {
		text   string
		fields string // in the order reported
	}{
		{``, "input"},
		{` `, "input"},
		{`null`, "input"},
		{`[]`, "input"},
		{`"x"`, "input"},
		{`{"chain_id":"c"} x`, "input"},
		{`{"chain_id":"c"}{}`, "input"},
		{`{"chain_id":"c",}`, "input"},
		{`{'chain_id':'c'}`, "input"},
		{"\ufeff{}", "input"},
		{"{\"chain_id\":\"\xff\"}", "input"},
		{strings.Repeat("[", 20_000), "input"},
		{`{}`, "chain_id"},
		{`{"chain_id":null}`, "chain_id"},
		{`{"Chain_id":"c"}`, "Chain_id chain_id"},
		{`{"chain_id":"c","chain_id":"c"}`, "chain_id"},
		{`{"chain_id":"c","":0,"a b":{"x":[1,{"y":"}"}]}}`, `"" "a b"`},
		{`{"chain_id":"a|b"}`, "chain_id"},
		{`{"chain_id":"a\u007f"}`, "chain_id"},
		{`{"chain_id":"a\n"}`, "chain_id"},
		{`{"chain_id":"\ufffd"}`, "chain_id"},
		{`{"chain_id":"\ud800"}`, "chain_id"},
		{`{"chain_id":"\ud800\ud800"}`, "chain_id"},
		{`{"chain_id":"\udc00\ud800x"}`, "chain_id"},
		{
			`{"chain_id":"c","jobs":[{"id":"j","kind":"AI","requester":"\ud800\ud800","spec":{"model":"\ud800x","precision":"\udc00\ud800"},"regions":["\ud800\\udc00"]}]}`,
			"jobs[0].requester jobs[0].spec.model jobs[0].spec.precision jobs[0].regions[0]",
		},
		{`{"chain_id":7}`, "chain_id"},
		{`{"chain_id":"` + strings.Repeat("x", 256) + `"}`, "chain_id"},
		{
			`{"chain_id":"c","epoch_id":1.0,"block_height":1e3,"now":-1,"match_count":9007199254740992,"rotation":"1"}`,
			"epoch_id block_height rotation now match_count",
		},
		{
			`{"chain_id":"c","epoch_id":true,"block_height":[0],"now":8589934592,"match_count":99999999999999999999,"rotation":-99999999999999999999}`,
			"epoch_id block_height now match_count rotation",
		},
		{`{"chain_id":"c","beacon":"0"}`, "beacon"},
		{`{"chain_id":"c","beacon":"0x"}`, "beacon"},
		{`{"chain_id":"c","beacon":0}`, "beacon"},
		{`{"chain_id":"c","beacon":"` + strings.Repeat("00", 1025) + `"}`, "beacon"},
		{`{"chain_id":"c","requester_grants":{"a":null,"b":-1,"b":0,"c d":1.5}}`, `requester_grants.a requester_grants.b requester_grants."c d"`},
		{`{"chain_id":"c","requester_grants":{"\ud800":1},"jobs":{},"providers":"","policy":[]}`, `requester_grants."" jobs providers policy`},
		{
			`{"chain_id":"c","policy":{"batch_size":0,"size":1,"priority":{"w_fee_ppb":1000000001,"fee_ref":0,"age_ref_ai_secs":8589934592,"age_ref_quantum_secs":0,"size_ref_bytes":0,"tiers":{"PRO":null,"X":1000000001}}}}`,
			"policy.size policy.priority.tiers.PRO policy.batch_size policy.priority.w_fee_ppb policy.priority.fee_ref policy.priority.age_ref_ai_secs policy.priority.age_ref_quantum_secs policy.priority.size_ref_bytes policy.priority.tiers.X",
		},
		{
			`{"chain_id":"c","policy":{"eligibility":{"min_health_ppb":1000000001,"heartbeat_timeout_secs":8589934592,"min_stake":0},"quotas":{"requester_window_secs":8589934592},"starvation":{"k":1}}}`,
			"policy.eligibility.min_stake policy.starvation.k policy.eligibility.min_health_ppb policy.eligibility.heartbeat_timeout_secs policy.quotas.requester_window_secs",
		},
		{`{"chain_id":"c","providers":[{}]}`, "providers[0].id providers[0].status"},
		{
			`{"chain_id":"c","providers":[null,{"id":"p","status":"ACTIVE"},{"id":"p","status":"active","capabilities":["AI","ai",null],"models":["m",null],"cooldown_until":{"ai":1}}]}`,
			"providers[0] providers[2].status providers[2].capabilities[1] providers[2].capabilities[2] providers[2].models[1] providers[2].cooldown_until.ai providers[0].id providers[0].status providers[2].id",
		},
		{
			`{"chain_id":"c","providers":[{"id":"p","status":"ACTIVE","health_ppb":1000000001,"attestation_expires_at":8589934592,"cooldown_until":{"QUANTUM":8589934592}}]}`,
			"providers[0].attestation_expires_at providers[0].health_ppb providers[0].cooldown_until.QUANTUM",
		},
		{`{"chain_id":"c","jobs":[{}]}`, "jobs[0].id jobs[0].kind"},
		{
			`{"chain_id":"c","jobs":[{"id":"j","kind":"TPU"},{"id":"j","kind":"AI","tier":"free","spec":{"models":""},"excluded":["","ok"],"enqueue_ts":8589934592}]}`,
			"jobs[0].kind jobs[1].spec.models jobs[1].tier jobs[1].enqueue_ts jobs[1].excluded[0] jobs[1].id",
		},
		{`{"chain_id":"c","jobs":[{"id":"j","kind":"AI","state":"QUEUED","units":-1,"max_fee":"1"}]}`, "jobs[0].state jobs[0].max_fee jobs[0].units"},
	} {
		in, err := match.Decode([]byte(test.text))
		if !errors.Is(err, gq.ErrInvalid) || errs.KindOf(err) != gq.KindInvalid {
			t.Errorf("%.200s: %v", test.text, err)
			continue
		}
		var fields []string
		for _, f := range errs.FaultsOf(err) {
			fields = append(fields, f.Field)
		}
		if got := strings.Join(fields, " "); got != test.fields {
			t.Errorf("%.200s\nfaults in %s\nwant      %s\n%v", test.text, got, test.fields, err)
		}
		if !cmp.Equal(in, match.Input{}) {
			t.Errorf("%.200s: and yet an input: %+v", test.text, in)
		}
	}
}

// An input of an earlier version is refused with what to write instead, by both decoders. What
// was recorded is read with the formula of its time: one reference for both kinds.
func TestFormerAgeReference(t *testing.T) {
	for _, value := range []string{"625000", "null"} {
		text := `{"priority":{"age_ref_secs":` + value + `}}`
		set := match.DefaultSettings()
		_, err := match.Decode([]byte(`{"chain_id":"c","policy":` + text + `}`))
		for path, err := range map[string]error{"policy.": err, "": set.Update([]byte(text))} {
			want := path + "priority.age_ref_secs: is no longer known: age_ref_ai_secs and age_ref_quantum_secs replace it"
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		}
	}
	in := input([]match.Provider{provider("p")}, job("a", match.AI), job("q", match.Quantum))
	in.Policy.Priority.AgeRefAI, in.Policy.Priority.AgeRefQuantum = 625_000, 625_000
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	const now = `"age_ref_ai_secs":625000,"age_ref_quantum_secs":625000`
	if !bytes.Contains(text, []byte(now)) {
		t.Fatalf("%s is not in %s", now, text)
	}
	for _, recorded := range [][]byte{text, bytes.Replace(text, []byte(now), []byte(`"age_ref_secs":625000`), 1)} {
		var got match.Input
		if err := json.Unmarshal(recorded, &got); err != nil || !cmp.Equal(in, got) {
			t.Errorf("%s: %v\n%s", recorded, err, cmp.Diff(in, got))
		}
	}
}

func TestDecodeSaysWhere(t *testing.T) {
	for text, want := range map[string]string{
		"{\n \"chain_id\": c}":      "line 2, column 14",
		"{\n\"å\": \"å\" x":         "line 2, column 10",
		"{\"chain_id\":\"\n\xff\"}": "line 2, column 1",
		"{":                         "line 1, column 1",
	} {
		if _, err := match.Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// Inputs that are built in Go are validated like decoded ones.
func TestValidate(t *testing.T) {
	sound := func() match.Input { return input([]match.Provider{provider("p")}, job("j", match.AI)) }
	for _, test := range []struct {
		fields string
		change func(*match.Input)
	}{
		{"", func(*match.Input) {}},
		{"policy.priority.tiers", func(in *match.Input) { delete(in.Policy.Priority.Tiers, "FREE") }},
		{`requester_grants."\xff"`, func(in *match.Input) { in.Grants = map[string]int64{"\xff": 1} }},
		{"chain_id jobs[0].requester", func(in *match.Input) { in.Chain, in.Jobs[0].Requester = "\xff", "\xff" }},
		{"providers[0].models[1] jobs[0].regions[0]", func(in *match.Input) {
			in.Providers[0].Models, in.Jobs[0].Regions = []string{"", "\xff"}, []string{"\xff"}
		}},
		{"providers[0].status providers[0].capabilities[1] jobs[0].kind", func(in *match.Input) {
			in.Providers[0].Status, in.Providers[0].Capabilities, in.Jobs[0].Kind = 9, []match.Kind{match.AI, 0}, 3
		}},
		{"jobs[0].attempt", func(in *match.Input) { in.Jobs[0].Attempt = -1 }},
	} {
		in := sound()
		test.change(&in)
		var fields []string
		for _, f := range errs.FaultsOf(in.Validate()) {
			fields = append(fields, f.Field)
		}
		if got := strings.Join(fields, " "); got != test.fields {
			t.Errorf("faults in %s, want %s", got, test.fields)
		}
		if _, err := match.Match(&in); errors.Is(err, gq.ErrInvalid) != (test.fields != "") {
			t.Errorf("with faults in %q: %v", test.fields, err)
		}
	}
	policy := match.Policy{}
	if n := len(errs.FaultsOf(policy.Validate())); n != 6 {
		t.Errorf("the zero policy has %d faults", n)
	}
	if _, err := match.Explain(&match.Input{}, "j"); !errors.Is(err, gq.ErrNotFound) {
		t.Error(err)
	}
}

func TestVocabularies(t *testing.T) {
	var names []string
	for _, k := range match.Kinds() {
		back, err := match.ParseKind(k.String())
		if back != k || err != nil || !k.Valid() {
			t.Errorf("%v is read as %v, %v", k, back, err)
		}
		names = append(names, k.String())
	}
	for _, s := range match.Statuses() {
		back, err := match.ParseStatus(s.String())
		if back != s || err != nil || !s.Valid() {
			t.Errorf("%v is read as %v, %v", s, back, err)
		}
		names = append(names, s.String())
	}
	if want := []string{"AI", "QUANTUM", "ACTIVE", "JAILED", "SUSPENDED", "RETIRED"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	var k match.Kind
	var s match.Status
	if !errors.Is(k.UnmarshalText([]byte("ai")), gq.ErrInvalid) || !errors.Is(s.UnmarshalText(nil), gq.ErrInvalid) || k.Valid() || s.Valid() {
		t.Error("what is no name was read")
	}
	if k.UnmarshalText([]byte("AI")) != nil || k != match.AI || s.UnmarshalText([]byte("JAILED")) != nil || s != match.Jailed {
		t.Errorf("read as %v and %v", k, s)
	}
	if got := fmt.Sprint(match.Kind(0), match.Kind(9), match.Status(0), match.Reason(99)); got != "unknown(0) unknown(9) unknown(0) unknown(99)" {
		t.Error(got)
	}
	seen := make(map[string]bool)
	for _, r := range match.AllReasons() {
		text, err := r.MarshalText()
		if err != nil || len(text) == 0 || seen[string(text)] || strings.HasPrefix(string(text), "unknown") {
			t.Errorf("reason %d is named %q, %v", r, text, err)
		}
		seen[string(text)] = true
	}
}

// countOne gives jobs without units the default, as the standard library cannot.
func countOne(t *testing.T, text []byte, in *match.Input) {
	t.Helper()
	var named struct {
		Jobs []struct {
			Units *int64 `json:"units"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		t.Fatal(err)
	}
	for i, j := range named.Jobs {
		if j.Units == nil {
			in.Jobs[i].Units = 1
		}
	}
}

// FuzzDecode checks that decoding either rejects the bytes as invalid, or gives an input
// that survives encoding and decoding, can be matched, and agrees with the standard
// library.
func FuzzDecode(f *testing.F) {
	text, err := os.ReadFile("testdata/round.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for i := range 8 {
		in := sample(rand.New(rand.NewPCG(uint64(i), 2)).IntN, i, i)
		text, err := json.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte(`{"chain_id":"\ud83d\ude00\\\"","policy":{"priority":{"tiers":{"":1}}},"x":[{"y":null}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		original := bytes.Clone(text)
		in, err := match.Decode(text)
		if !bytes.Equal(text, original) {
			t.Error("decoding changed its input")
		}
		if err != nil {
			if faults := errs.FaultsOf(err); len(faults) == 0 {
				t.Errorf("refused with %v", err)
			}
			return
		}
		reference := match.Input{Policy: match.DefaultPolicy()}
		if err := json.Unmarshal(text, &reference); err != nil {
			t.Fatalf("read what the standard library refuses: %v", err)
		}
		countOne(t, text, &reference)
		if diff := cmp.Diff(normal(reference), normal(in)); diff != "" {
			t.Fatalf("(-standard library +ours):\n%s", diff)
		}
		written, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		back, err := match.Decode(written)
		if err != nil {
			t.Fatalf("what was read cannot be written and read again: %v\n%s", err, written)
		}
		if diff := cmp.Diff(in, back); diff != "" {
			t.Fatalf("(-first +second):\n%s", diff)
		}
		if len(in.Jobs) > 100 || len(in.Providers) > 100 {
			return
		}
		if diff := cmp.Diff(oracle(&in), round(t, &in)); diff != "" {
			t.Fatalf("(-oracle +match):\n%s", diff)
		}
	})
}

// normal turns empty lists into nil, where the two decoders differ.
func normal(in match.Input) match.Input {
	text, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	var out match.Input
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}
