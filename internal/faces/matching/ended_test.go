package matching_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store/local"
)

// still is the face in a bubble, where time passes only when a test waits.
type still struct {
	*testing.T
	store    *counted
	engine   *engine.Engine
	dispatch *matchmaker.Dispatcher
	face     *matching.Face
	began    time.Time

	job, lease string
}

func newStill(t *testing.T, o matchmaker.Options) *still {
	t.Helper()
	opened, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &counted{Store: opened}
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := matchmaker.New(e, s, o)
	if err != nil {
		t.Fatal(err)
	}
	return &still{T: t, store: s, engine: e, dispatch: d, face: matching.Handler(d, e, matching.Options{}), began: time.Now()}
}

func (f *still) call(method, path, body string) (int, object) {
	f.Helper()
	w := httptest.NewRecorder()
	f.face.ServeHTTP(w, httptest.NewRequestWithContext(f.Context(), method, matching.Base+path, strings.NewReader(body)))
	var out object
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		f.Fatalf("%s %s answered %s", method, path, w.Body)
	}
	return w.Code, out
}

func (f *still) must(method, path, body string) object {
	f.Helper()
	status, out := f.call(method, path, body)
	if status != http.StatusOK && status != http.StatusCreated {
		f.Fatalf("%s %s %s: %d %v", method, path, body, status, out)
	}
	return out
}

// refused checks that a call is rejected as a conflict for the given reason.
func (f *still) refused(method, path, body, code, detail string) {
	f.Helper()
	status, out := f.call(method, path, body)
	if status != http.StatusConflict || out["code"] != code || out["detail"] != detail {
		f.Errorf("%s %s %s: %d %v: %v\nwant 409 %s: %s", method, path, body, status, out["code"], out["detail"], code, detail)
	}
}

// do makes a call about the lease.
func (f *still) do(verb, body string) object {
	f.Helper()
	return f.must("POST", "/leases/"+f.lease+"/"+verb, body)
}

func (f *still) register() {
	f.Helper()
	f.must("POST", "/providers", strings.Replace(provider, "%q", `"p"`, 1))
}

// assigned assigns a job to provider p.
func (f *still) assigned() {
	f.Helper()
	f.register()
	f.job = f.must("POST", "/jobs", `{"kind":"AI","units":10}`)["id"].(string)
	f.lease = f.given()
}

// given returns the lease of the only job.
func (f *still) given() string {
	f.Helper()
	f.must("POST", "/providers/p/heartbeat", "")
	list := f.must("POST", "/rounds", "")["assignments"].([]any)
	if len(list) != 1 {
		f.Fatalf("assigned %v", list)
	}
	return list[0].(object)["lease_id"].(string)
}

// next returns the lease of the next attempt.
func (f *still) next() string {
	f.Helper()
	f.sweep()
	time.Sleep(10 * time.Second) // longer than the backoff and the cooldown
	return f.given()
}

// world returns everything that a rejected call could have changed.
func (f *still) world() []any {
	f.Helper()
	last, err := f.engine.LastEvent(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return []any{
		last, f.must("GET", "/leases/"+f.lease, ""), f.must("GET", "/jobs/"+f.job, ""),
		f.must("GET", "/providers/p", ""), f.must("GET", "/policy", ""),
	}
}

func (f *still) sweep() {
	f.Helper()
	if _, err := f.engine.Sweep(f.Context(), time.Now()); err != nil {
		f.Fatal(err)
	}
}

func (f *still) cancelJob() {
	f.Helper()
	id, err := gq.ParseJobID(f.job)
	if err == nil {
		_, err = f.engine.Cancel(f.Context(), id, "not needed")
	}
	if err != nil {
		f.Fatal(err)
	}
}

// badProofs rejects proofs that say they are invalid.
type badProofs struct{}

func (badProofs) CheckProof(_ context.Context, c match.Completion) (string, error) {
	if c.Proof == "bad" {
		return "it is bad", nil
	}
	return "", nil
}

const (
	completion = `{"output_digest":"0000000000000000000000000000000000000000000000000000000000000000"}`
	disproved  = `{"output_digest":"0000000000000000000000000000000000000000000000000000000000000000","proof":"bad"}`
	other      = `{"output_digest":"1111111111111111111111111111111111111111111111111111111111111111"}`
)

func status(name string) func(*still) {
	return func(f *still) {
		f.do("ack", "")
		time.Sleep(2 * time.Second)
		f.must("POST", "/providers/p/status", `{"status":"`+name+`"}`)
	}
}

// endings are all the ways in which a lease ends: the calls from the assignment to the
// end, the lease's state then, and how long after its start that was.
var endings = []struct {
	name           string
	end            func(*still)
	status, reason string
	after          time.Duration
	again          string // the call that ended the lease, which gets the same answer again
	body           string
}{
	{"completed", func(f *still) { f.do("ack", ""); f.do("complete", completion) }, "COMPLETED", "", 0, "complete", completion},
	{"failed", func(f *still) { f.do("ack", ""); f.do("fail", `{"reason":"oom"}`) }, "CANCELLED", "PROVIDER_FAIL", 0, "fail", `{"reason":"oom"}`},
	{"failed for the last time", func(f *still) { f.do("ack", ""); f.do("fail", "") }, "CANCELLED", "PROVIDER_FAIL", 0, "fail", ""},
	{"declined", func(f *still) { time.Sleep(time.Second); f.do("decline", "") }, "CANCELLED", "declined", time.Second, "decline", ""},
	{"not acknowledged", func(*still) { time.Sleep(time.Minute) }, "CANCELLED", "ACK_TIMEOUT", 5 * time.Second, "", ""},
	{"expired", func(f *still) { f.do("ack", ""); time.Sleep(11 * time.Minute) }, "EXPIRED", "LEASE_EXPIRED", 10 * time.Minute, "", ""},
	{"expired after a renewal", func(f *still) {
		f.do("ack", "")
		f.do("renew", "")
		time.Sleep(20 * time.Minute)
	}, "EXPIRED", "LEASE_EXPIRED", 15 * time.Minute, "", ""},
	{"its proof did not hold", func(f *still) {
		f.do("ack", "")
		f.refused("POST", "/leases/"+f.lease+"/complete", disproved, "proof_invalid", `complete lease "`+f.lease+`": the proof does not hold: it is bad`)
	}, "CANCELLED", "PROOF_INVALID", 0, "", ""},
	{"its proof was found not to hold", func(f *still) { f.do("ack", ""); f.do("proof", `{"flaw":"forged"}`) }, "CANCELLED", "PROOF_INVALID", 0, "", ""},
	{"jailed", status("JAILED"), "CANCELLED", "provider_jailed", 2 * time.Second, "", ""},
	{"suspended", status("SUSPENDED"), "CANCELLED", "provider_suspended", 2 * time.Second, "", ""},
	{"retired", status("RETIRED"), "CANCELLED", "provider_retired", 2 * time.Second, "", ""},
	{"jailed before it was acknowledged", func(f *still) {
		f.must("POST", "/providers/p/status", `{"status":"JAILED"}`)
	}, "CANCELLED", "provider_jailed", 0, "", ""},
	{"fewer leases", func(f *still) {
		f.do("ack", "")
		f.must("PUT", "/policy", `{"quotas":{"leases_max_per_provider":0}}`)
	}, "CANCELLED", "quota_reduced", 0, "", ""},
	{"fewer units", func(f *still) {
		f.do("ack", "")
		f.must("PUT", "/policy", `{"quotas":{"ai_units_per_epoch":9}}`)
	}, "CANCELLED", "quota_reduced", 0, "", ""},
	{"the job's absolute lifetime", func(f *still) {
		f.do("ack", "")
		time.Sleep(3 * time.Minute)
	}, "CANCELLED", "ttl", 2 * time.Minute, "", ""},
	{"the job's relative lifetime", func(f *still) {
		f.do("ack", "")
		time.Sleep(3 * time.Minute)
	}, "CANCELLED", "ttl", time.Minute, "", ""},
	{"cancelled job", (*still).cancelJob, "CANCELLED", "job_cancelled", 0, "", ""},
	{"a newer attempt has the job", func(f *still) {
		time.Sleep(time.Minute)
		f.next()
	}, "CANCELLED", "ACK_TIMEOUT", 5 * time.Second, "", ""},
	{"a newer attempt completed", func(f *still) {
		f.do("ack", "")
		time.Sleep(11 * time.Minute)
		newer := f.next()
		f.must("POST", "/leases/"+newer+"/ack", "")
		f.must("POST", "/leases/"+newer+"/complete", completion)
	}, "EXPIRED", "LEASE_EXPIRED", 10 * time.Minute, "", ""},
	{"a newer attempt failed", func(f *still) {
		f.do("ack", "")
		f.do("fail", "")
		newer := f.next()
		f.must("POST", "/leases/"+newer+"/ack", "")
		f.must("POST", "/leases/"+newer+"/fail", `{"reason":"too"}`)
	}, "CANCELLED", "PROVIDER_FAIL", 0, "", ""},
	{"a declined lease, completed by the next", func(f *still) {
		f.do("decline", "")
		newer := f.next()
		f.must("POST", "/leases/"+newer+"/ack", "")
		f.must("POST", "/leases/"+newer+"/complete", completion)
	}, "CANCELLED", "declined", 0, "decline", ""},
}

// policies has the settings that some endings need.
var policies = map[string]string{
	"failed for the last time":    `{"retries":{"attempt_max":1}}`,
	"the job's absolute lifetime": `{"ttl":{"abs_default_ai_secs":120}}`,
	"the job's relative lifetime": `{"ttl":{"rel_max_secs":60}}`,
}

// After its end, every call about a lease is rejected with the reason of the end and
// changes nothing, whether or not the end was recorded yet.
func TestEndedLease(t *testing.T) {
	spec.Covers(t, "M-54", "M-109", "M-126", "M-132")
	for _, test := range endings {
		for name, settle := range map[string]func(*still){"noticed": (*still).sweep, "not yet noticed": func(*still) {}} {
			t.Run(test.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newStill(t, matchmaker.Options{Hooks: match.Hooks{Proofs: badProofs{}}})
					if p := policies[test.name]; p != "" {
						f.must("PUT", "/policy", p)
					}
					f.assigned()
					start := time.Now()
					test.end(f)
					settle(f)
					f.hasEnded(test.status, test.reason, start.Add(test.after))
					before := f.world()
					ended := "it has ended: " + test.status
					if test.reason != "" {
						ended += " (" + test.reason + ")"
					}
					ended += " at " + start.Add(test.after).UTC().Format(time.RFC3339)
					for verb, body := range map[string]string{
						"ack": "{}", "renew": "{}", "decline": "{}", "fail": `{"reason":"other"}`, "complete": other,
					} {
						path := "/leases/" + f.lease + "/" + verb
						what := verb + ` lease "` + f.lease + `": `
						if verb == test.again {
							f.refused("POST", path, by("q", test.body), "stale_lease", what+foreign)
						}
						f.refused("POST", path, by("q", body), "stale_lease", what+foreign)
						if verb == test.again && verb == "decline" {
							continue // there is only one way to decline
						}
						f.refused("POST", path, body, "stale_lease", what+ended)
					}
					if test.again != "" {
						f.do(test.again, test.body)
					}
					if diff := cmp.Diff(before, f.world()); diff != "" {
						t.Errorf("refused calls changed something:\n%s", diff)
					}
				})
			})
		}
	}
}

const foreign = `provider "q" does not hold it: it was given to another`

// by adds the caller's provider id to a body.
func by(provider, body string) string {
	members := strings.TrimSuffix(strings.TrimPrefix(body, "{"), "}")
	if members != "" {
		members += ","
	}
	return "{" + members + `"provider_id":"` + provider + `"}`
}

// hasEnded checks that the lease is shown as ended.
func (f *still) hasEnded(status, reason string, at time.Time) {
	f.Helper()
	l := f.must("GET", "/leases/"+f.lease, "")
	if got, _ := l["reason"].(string); l["status"] != status || got != reason || l["ended_at"] != float64(at.Unix()) {
		f.Errorf("lease %v, want %s (%s) at %d", l, status, reason, at.Unix())
	}
}

// A rejected call about an active lease says what would be allowed.
func TestLiveLeaseRefusals(t *testing.T) {
	spec.Covers(t, "M-66")
	synctest.Test(t, func(t *testing.T) {
		f := newStill(t, matchmaker.Options{})
		f.assigned()
		path := "/leases/" + f.lease + "/"
		of := func(verb string) string { return verb + ` lease "` + f.lease + `": ` }
		before := f.world()
		for verb, body := range map[string]string{"renew": "", "fail": "", "complete": completion} {
			f.refused("POST", path+verb, body, "illegal_move",
				of(verb)+"it is not acknowledged yet: do that first, before "+f.began.Add(5*time.Second).UTC().Format(time.RFC3339))
		}
		f.refused("POST", path+"proof", `{"flaw":"x"}`, "illegal_move", `report the proof of lease "`+f.lease+`": it is not acknowledged yet, so there is none`)
		if diff := cmp.Diff(before, f.world()); diff != "" {
			t.Errorf("refused calls changed something:\n%s", diff)
		}
		f.do("ack", "")
		for range 4 {
			f.do("renew", "")
		}
		before = f.world()
		f.refused("POST", path+"decline", "", "illegal_move", of("decline")+"it was acknowledged: what was begun can fail, but not be declined")
		f.refused("POST", path+"renew", "", "illegal_move", of("renew")+"it was renewed 4 times, which is as often as its terms allow: its deadline stays "+
			f.began.Add(30*time.Minute).UTC().Format(time.RFC3339))
		if diff := cmp.Diff(before, f.world()); diff != "" {
			t.Errorf("refused calls changed something:\n%s", diff)
		}
	})
}

// Other conflicts name their cause; they do not claim a concurrent change.
func TestConflictsSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStill(t, matchmaker.Options{})
		f.assigned()
		registered := strings.Replace(provider, "%q", `"p"`, 1)
		f.refused("POST", "/providers", `{"id":"p","status":"JAILED"}`, "conflict",
			`register provider "p": it is ACTIVE: registering again does not change that, setting its status does`)
		f.must("POST", "/providers/p/status", `{"status":"RETIRED"}`)
		f.refused("POST", "/providers", registered, "conflict", `register provider "p": it is RETIRED, and retirement is final`)
		f.refused("POST", "/providers/p/status", `{"status":"ACTIVE"}`, "conflict", `set status of provider "p": it is RETIRED, and retirement is final`)
		f.must("POST", "/beacon", `{"chain_id":"c","epoch_id":3,"block_height":7,"beacon":"aa"}`)
		for _, earlier := range []string{`"epoch_id":3,"block_height":6`, `"epoch_id":2,"block_height":9`, `"epoch_id":3,"block_height":7,"beacon":"bb"`} {
			f.refused("POST", "/beacon", `{"chain_id":"c",`+earlier+`}`, "conflict",
				`beacon: chain "c" stands at epoch 3, height 7, and neither goes back nor says two things there`)
		}
	})
}
