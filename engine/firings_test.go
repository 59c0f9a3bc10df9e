package engine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

func TestFirings(t *testing.T) {
	from := time.Date(2026, time.March, 27, 12, 0, 0, 0, time.UTC)
	s := gq.Schedule{Cron: "30 2 * * *", TimeZone: "Europe/Berlin", End: time.Date(2026, time.March, 30, 12, 0, 0, 0, time.UTC)}
	got, err := engine.Firings(&s, from, 5)
	if err != nil {
		t.Fatal(err)
	}
	// On 29 March clocks go forward from 02:00 to 03:00; the end leaves no fourth one.
	want := []string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}
	if len(got) != len(want) {
		t.Fatalf("it fires at %v, want %v", got, want)
	}
	for i := range want {
		if got[i].UTC().Format(time.RFC3339) != want[i] {
			t.Errorf("firing %d is %v, want %s", i, got[i], want[i])
		}
	}
	if _, err := engine.Firings(&gq.Schedule{Cron: "x"}, from, 5); err == nil {
		t.Error("a wrong expression has firings")
	}
}
