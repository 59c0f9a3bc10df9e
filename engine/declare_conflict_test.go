package engine_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Whatever an operator sets stays, setting by setting, and what he did not touch follows the
// declaration. The test covers every field of a queue and of its policy.
func TestDeclareQueueKeepsEverySetting(t *testing.T) {
	other := func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + int64(time.Second))
		default: // of another kind: see below
		}
	}
	fields := []func(*gq.Queue) reflect.Value{}
	for i := range reflect.TypeFor[gq.Queue]().NumField() {
		switch name := reflect.TypeFor[gq.Queue]().Field(i).Name; name {
		case "Name", "UpdatedAt", "Policy", "Rate", "Pool":
		default:
			fields = append(fields, func(q *gq.Queue) reflect.Value { return reflect.ValueOf(q).Elem().FieldByName(name) })
		}
	}
	for _, name := range []string{"LeaseTTL", "Lifetime", "ExecutionTimeout", "StartWithin", "Retention", "RetryTimeout"} {
		fields = append(fields, func(q *gq.Queue) reflect.Value { return reflect.ValueOf(&q.Policy).Elem().FieldByName(name) })
	}
	for k, field := range fields {
		bubble(t, func(t *testing.T, f *fixture) {
			first := machine.NewQueue("q")
			must[gq.Queue](f.T)(f.DeclareQueue(f.Context(), first))
			operated := must[gq.Queue](f.T)(f.ChangeQueue(f.Context(), "q", func(q *gq.Queue) { other(field(q)) }))
			next := first
			next.MaxDepth, next.Policy.Hold = 77, 7*time.Second
			got := must[gq.Queue](f.T)(f.DeclareQueue(f.Context(), next))
			if a, b := field(&got), field(&operated); !a.Equal(b) {
				t.Errorf("field %d: the operator's %v became %v", k, b, a)
			}
			if got.Policy.Hold != 7*time.Second {
				t.Errorf("field %d: a setting that the operator did not touch is %v", k, got.Policy.Hold)
			}
		})
	}
}

// A declaration that cannot be combined with what an operator has set names the setting; nothing
// changes.
func TestDeclareQueueAgainstTheOperator(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		q := machine.NewQueue("q")
		must[gq.Queue](f.T)(f.DeclareQueue(f.Context(), q))
		before := must[gq.Queue](f.T)(f.ChangeQueue(f.Context(), "q", func(q *gq.Queue) { q.Policy.Aging = time.Minute }))
		q.Fair = true
		_, err := f.DeclareQueue(f.Context(), q)
		var invalid *gq.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Faults) != 1 || invalid.Faults[0].Field != "policy.aging" {
			t.Errorf("%v", err)
		}
		if now, _ := f.Queue(f.Context(), "q"); now != before {
			t.Errorf("%+v", now)
		}
	})
}

// Two programs that declare a queue differently do not undo each other for ever. A rollback is
// not mistaken for that.
func TestDeclareQueueTwice(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		a, b := machine.NewQueue("q"), machine.NewQueue("q")
		a.MaxRunning, b.MaxRunning = 5, 10
		b.Policy.LeaseTTL = time.Minute
		for _, q := range []gq.Queue{a, b, a, a, b, b} { // a rollback, and the release again
			must[gq.Queue](f.T)(f.DeclareQueue(f.Context(), q))
			time.Sleep(time.Minute)
		}
		_, err := f.DeclareQueue(f.Context(), a)
		var invalid *gq.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Faults) != 2 || invalid.Faults[0].Field != "policy.lease_ttl" || invalid.Faults[1].Field != "max_running" ||
			!strings.Contains(invalid.Faults[1].Problem, "5 is declared here and 10 by another program") {
			t.Errorf("%v", err)
		}
		if now, _ := f.Queue(f.Context(), "q"); now.MaxRunning != 10 {
			t.Errorf("%+v", now)
		}
		must[gq.Queue](f.T)(f.DeclareQueue(f.Context(), b)) // the other one still starts
		time.Sleep(time.Hour)
		must[gq.Queue](f.T)(f.DeclareQueue(f.Context(), a))
	})
}
