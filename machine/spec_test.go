package machine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

// Omitted fields get the defaults of the job model.
func TestSpecDefaults(t *testing.T) {
	spec.Covers(t, "J-43")
	s := gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "email.send", Requires: []string{"gpu", "big", "gpu"}}.WithDefaults()
	if s.Metadata.Priority != gq.PriorityNormal {
		t.Errorf("priority %s, want NORMAL", s.Metadata.Priority)
	}
	if s.Queue != gq.DefaultQueue || s.Policy != machine.DefaultPolicy() || s.Payload.ContentType != gq.JSON {
		t.Errorf("queue %q, content type %q, policy %+v", s.Queue, s.Payload.ContentType, s.Policy)
	}
	if got := strings.Join(s.Requires, " "); got != "big gpu" {
		t.Errorf("requires %q, want them sorted and once", got)
	}
	if err := machine.CheckSpec(&s, machine.DefaultLimits()); err != nil {
		t.Errorf("a spec with only a type is refused: %v", err)
	}
}

// All faults are reported at once, each with its field.
func TestSpecReportsEveryFault(t *testing.T) {
	s := gq.Spec{
		Queue: "a b", Payload: gq.Payload{Data: []byte{0xff}, ContentType: gq.JSON}, Policy: machine.DefaultPolicy(),
		Delay: -time.Second, CostUnits: -1, MaxFee: -1, RunAt: time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC),
		Key:      gq.IdempotencyKey{Name: strings.Repeat("å", 257), Scope: "s"},
		Requires: []string{""},
		Metadata: gq.Metadata{Priority: 9, CallbackURL: "ftp://x", Tags: map[string]string{"": "v"}},
	}
	err := machine.CheckSpec(&s, machine.DefaultLimits())
	if !errors.Is(err, gq.ErrInvalid) || errs.KindOf(err) != gq.KindInvalid {
		t.Fatalf("got %v, want ErrInvalid", err)
	}
	named := map[string]bool{}
	for _, f := range errs.FaultsOf(err) {
		named[f.Field] = true
	}
	for _, field := range []string{
		"id", "queue", "type", "payload", "delay", "run_at", "cost_units", "max_fee", "idempotency_key",
		"requires[0]", "priority", "callback_url", "tags",
	} {
		if !named[field] {
			t.Errorf("the fault of %s is not reported: %v", field, err)
		}
	}
}
