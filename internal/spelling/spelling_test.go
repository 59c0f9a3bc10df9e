package spelling_test

import (
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/spelling"
)

func TestNearest(t *testing.T) {
	names := []string{"at", "http", "payload", "priority", "scheduler.lease_ttl"}
	for name, want := range map[string]string{
		"htpp": "http", "paylaod": "payload", "priorty": "priority", "scheduller.leasettl": "scheduler.lease_ttl",
		"a": "at", "it": "at", "xy": "", "color": "", "payload": "payload", "": "", strings.Repeat("a", 1000): "",
	} {
		if got := spelling.Nearest(name, names); got != want {
			t.Errorf("%.20q: %q, want %q", name, got, want)
		}
	}
}
