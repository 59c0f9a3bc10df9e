package observe

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gopherqueue/gq"
)

// Refusals by the access check are counted by their reason; an error of the store is none of them.
func TestAccessRefusals(t *testing.T) {
	o := New(nil, nil)
	for _, err := range []error{fmt.Errorf("x: %w", gq.ErrDenied), gq.ErrDenied, gq.ErrUnauthenticated, gq.ErrUnavailable, errors.New("odd")} {
		o.Refused(err)
	}
	_, got := scrape(t, NewMetrics(o, &manyQueues{}, nil))
	for reason, n := range map[string]float64{"denied": 2, "unauthenticated": 1, "rate_limited": 0} {
		series := "gq_refused_total{call=access,reason=" + reason + "}"
		if v, has := got[series]; !has || v != n {
			t.Errorf("%s is %v (%v), want %v", series, v, has, n)
		}
	}
	if _, has := got["gq_refused_total{call=access,reason=store_unavailable}"]; has {
		t.Error("an error of the store counts as a refusal by the access check")
	}
}
