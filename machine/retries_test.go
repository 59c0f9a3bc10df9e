package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// A failure that ends a job uses up no retry, and whatever else ends it gives none back.
func TestRetriesUsed(t *testing.T) {
	semantics := gq.PresetSemantics.Policy()
	held := policy(gq.PresetJobModel, func(p *gq.Policy) { p.HoldFault = true })
	nack := func(j *subject) { j.do(fail(j.run(), gq.CategoryTemporary)) }
	again := func(j *subject) gq.LeaseRef { return j.after(time.Hour).run() }
	for _, c := range []struct {
		name   string
		policy gq.Policy
		walk   func(j *subject)
		want   int
	}{
		{"cancelled while it waits", semantics, func(j *subject) { nack(j); j.after(time.Hour); nack(j); j.do(cancel) }, 2},
		{"lost once, then cancelled", machine.DefaultPolicy(), func(j *subject) { j.run(); j.after(time.Hour).do(advance); j.do(cancel) }, 1},
		{"permanent", semantics, func(j *subject) { nack(j); j.do(fail(again(j), gq.CategoryPermanent)) }, 1},
		{"stopped on request", semantics, func(j *subject) {
			nack(j)
			ref := again(j)
			j.do(cancel)
			j.after(1).do(fail(ref, gq.CategoryCancelled))
		}, 1},
		{"fails after a request to stop", semantics, func(j *subject) { ref := j.run(); j.do(cancel); j.after(1).do(fail(ref, gq.CategoryTemporary)) }, 0},
		{"lost after a request to stop", semantics, func(j *subject) {
			nack(j)
			again(j)
			j.do(cancel)
			j.after(time.Minute).do(advance)
		}, 1},
		{"given back after a request to stop", held, func(j *subject) {
			j.claim(machine.Grant{})
			j.after(time.Hour).do(advance)
			ref := again(j)
			j.do(cancel)
			j.after(1).do(release(ref, 0))
		}, 1},
	} {
		j := submit(t, c.policy)
		c.walk(j)
		if got := machine.RetriesUsed(&j.s, &c.policy); got != c.want || !j.s.Status.Terminal() {
			t.Errorf("%s: %s with %d retries, want %d: %+v", c.name, j.s.Status, got, c.want, j.s)
		}
	}
}
