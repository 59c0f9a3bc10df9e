package wake_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/wake"
)

func TestUp(t *testing.T) {
	c := make(chan struct{}, 1)
	wake.Up(c)
	wake.Up(c)
	<-c
	if len(c) != 0 {
		t.Error("two wakes without a receiver count as two")
	}
}

func TestEarlier(t *testing.T) {
	var none time.Time
	a, b := time.Unix(1, 0), time.Unix(2, 0)
	for _, v := range []struct{ a, b, want time.Time }{{a, b, a}, {b, a, a}, {a, a, a}, {none, b, b}, {b, none, b}, {none, none, none}} {
		if got := wake.Earlier(v.a, v.b); got != v.want {
			t.Errorf("Earlier(%v, %v) is %v, want %v", v.a, v.b, got, v.want)
		}
	}
}
