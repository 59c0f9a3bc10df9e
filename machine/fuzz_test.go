package machine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
)

func FuzzParseJobID(f *testing.F) {
	f.Add("")
	f.Add("01020300-0000-4000-8000-000000000000")
	f.Add("01020300-0000-4000-8000-00000000000G")
	f.Add("0102030A-0000-4000-8000-0000000000FF")
	f.Add("00000000-0000-0000-0000-000000000000")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := gq.ParseJobID(text)
		if err != nil {
			if !errors.Is(err, gq.ErrInvalid) || !id.IsZero() || len(err.Error()) > 512 {
				t.Errorf("%q is refused with %v, %v", text, id, err)
			}
			return
		}
		if !strings.EqualFold(id.String(), text) || id.IsZero() {
			t.Errorf("%q is read as %v", text, id)
		}
		var back gq.JobID
		if written, err := id.MarshalText(); err != nil || back.UnmarshalText(written) != nil || back != id {
			t.Errorf("%v is written as %q and read as %v: %v", id, written, back, err)
		}
	})
}

func FuzzParseNames(f *testing.F) {
	for _, name := range []string{"", "PENDING", "0", "4", "5", "job.started", "exponential", "full", "AFTER_ANY", "SYSTEM", "jobmodel", "pending"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		checkParsed(t, name, enum.Parse[gq.Status])
		checkParsed(t, name, enum.Parse[gq.EventType])
		checkParsed(t, name, enum.Parse[gq.Preset])
		checkParsed(t, name, enum.Parse[gq.Category])
		checkParsed(t, name, enum.Parse[gq.DependencyKind])
		checkParsed(t, name, enum.Parse[gq.Strategy])
		checkParsed(t, name, enum.Parse[gq.Jitter])
		if p, err := enum.Parse[gq.Priority](name); err == nil && p.String() != name && name != string(rune('0'+p.Level())) {
			t.Errorf("%q is read as %v", name, p)
		}
	})
}

func checkParsed[T interface {
	comparable
	String() string
}](t *testing.T, name string, parse func(string) (T, error)) {
	t.Helper()
	v, err := parse(name)
	switch {
	case err == nil && v.String() != name:
		t.Errorf("%q is read as %v", name, v)
	case err != nil && (!errors.Is(err, gq.ErrInvalid) || v != *new(T) || len(err.Error()) > 1024):
		t.Errorf("%q is refused with %v, %v", name, v, err)
	}
}
