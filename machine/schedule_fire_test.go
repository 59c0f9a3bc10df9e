package machine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

func TestOverlapNames(t *testing.T) {
	checkNames(t, []gq.OverlapRule{gq.OverlapAllow, gq.OverlapSkip, gq.OverlapQueueOne, gq.OverlapCancelRunning}, enum.Parse[gq.OverlapRule],
		"allow", "skip", "queue-one", "cancel-running")
}

func TestOverlapOf(t *testing.T) {
	lease := &gq.Lease{}
	states := map[string]*gq.State{
		"none":      nil,
		"ended":     {Status: gq.StatusCompleted, Lease: lease},
		"cancelled": {Status: gq.StatusCancelled},
		"waiting":   {Status: gq.StatusScheduled, Depth: 1},
		"delayed":   {Status: gq.StatusDelayed, Depth: 1},
		"running":   {Status: gq.StatusRunning, Lease: lease, Depth: 1},
		"retrying":  {Status: gq.StatusRetrying, Lease: lease, Depth: 1},
		"deep":      {Status: gq.StatusRunning, Lease: lease, Depth: gq.MaxDepth},
	}
	const submit, after, cancel, none = machine.OverlapSubmit, machine.OverlapAfter, machine.OverlapCancel, machine.OverlapNone
	for rule, want := range map[gq.OverlapRule]map[string]machine.Overlap{
		gq.OverlapAllow:         {},
		gq.OverlapSkip:          {"waiting": none, "delayed": none, "running": none, "retrying": none, "deep": none},
		gq.OverlapQueueOne:      {"waiting": none, "delayed": none, "running": after, "retrying": after, "deep": none},
		gq.OverlapCancelRunning: {"waiting": cancel, "delayed": cancel, "running": cancel, "retrying": cancel, "deep": cancel},
	} {
		for name, last := range states {
			expected, ok := want[name]
			if !ok {
				expected = submit
			}
			if got := machine.OverlapOf(rule, last); got != expected {
				t.Errorf("%v while the last job is %s: %d, want %d", rule, name, got, expected)
			}
		}
	}
}

// The delays of one schedule's slots, and of one slot of many schedules, fill the range evenly.
func TestJitterOf(t *testing.T) {
	slot := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const limit, draws, parts = 10 * time.Second, 1000, 10
	for what, draw := range map[string]func(i int) time.Duration{
		"slots":     func(i int) time.Duration { return machine.JitterOf("s", slot.Add(time.Duration(i)*time.Minute), limit) },
		"schedules": func(i int) time.Duration { return machine.JitterOf(fmt.Sprint("s", i), slot, limit) },
	} {
		var found [parts]int
		for i := range draws {
			d := draw(i)
			if d < 0 || d >= limit || d != draw(i) {
				t.Fatalf("%s: delay %v, then %v", what, d, draw(i))
			}
			found[d/(limit/parts)]++
		}
		for i, n := range found {
			if n < draws/parts/2 || n > draws/parts*2 {
				t.Errorf("%s: %d of %d delays are in part %d of %d", what, n, draws, i, parts)
			}
		}
	}
	if d := machine.JitterOf("s", slot, 0); d != 0 {
		t.Errorf("without jitter: %v", d)
	}
	if a, b := machine.JitterOf("s", slot, time.Hour), machine.JitterOf("s", slot.In(time.FixedZone("x", 3600)), time.Hour); a != b {
		t.Errorf("the time zone changes the delay: %v, %v", a, b)
	}
}

func TestSlotPayload(t *testing.T) {
	slot := time.Date(2030, 1, 31, 23, 30, 0, 0, time.UTC)
	zone := time.FixedZone("x", 3600)
	for _, test := range []struct{ contentType, data, want string }{
		{gq.JSON, `{"at":"{{slot}}","path":"/{{slot_date}}/x"}`, `{"at":"2030-01-31T23:30:00Z","path":"/2030-02-01/x"}`},
		{gq.JSON, `{"a":"{{other}}"}`, `{"a":"{{other}}"}`},
		{gq.OctetStream, `{{slot}}`, `{{slot}}`},
	} {
		in := gq.Payload{ContentType: test.contentType, Data: []byte(test.data)}
		if got := machine.SlotPayload(in, slot, zone); string(got.Data) != test.want {
			t.Errorf("%s became %s, want %s", test.data, got.Data, test.want)
		}
		if string(in.Data) != test.data {
			t.Errorf("the template became %s", in.Data)
		}
	}
}
