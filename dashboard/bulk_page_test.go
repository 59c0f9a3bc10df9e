package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

// many submits jobs of two types.
func (s *site) many(n int) {
	s.Helper()
	for i := 0; i < n; {
		var specs []gq.Spec
		for ; i < n && len(specs) < 500; i++ {
			specs = append(specs, gq.Spec{Queue: "bulk", Type: fmt.Sprintf("import.%d", i%2)})
		}
		if _, err := s.queue.SubmitBatch(s.Context(), specs); err != nil {
			s.Fatal(err)
		}
	}
}

// An action on many jobs is confirmed with their number, which is exact, and says how far it has come.
func TestManyJobsAreConfirmedByTheirNumber(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.many(2400)
	live := func(want int64) {
		t.Helper()
		if c, err := s.queue.Counts(t.Context(), "bulk"); err != nil || c[0].Live() != want {
			t.Fatalf("%d jobs live, want %d, %v", c[0].Live(), want, err)
		}
	}
	form := url.Values{"csrf": {s.token(s.get("jobs?type=import.1", http.StatusOK))}, "type": {"import.1"}, "action": {"cancel"}}
	confirm := s.do(http.MethodPost, "jobs/bulk", form).body
	s.has(confirm, "1,200 jobs will be cancelled", "Type 1,200 to confirm", `name="count" value="1200"`)
	form.Set("confirm", "1")
	form.Set("count", "1200")
	for _, typed := range []string{"", "1201", "12"} {
		form.Set("typed", typed)
		if a := s.do(http.MethodPost, "jobs/bulk", form); a.StatusCode != http.StatusOK || !strings.Contains(a.body, "Type 1,200 to confirm") {
			t.Errorf("typed %q: %d", typed, a.StatusCode)
		}
	}
	form.Del("typed")
	form.Del("count")
	if a := s.do(http.MethodPost, "jobs/bulk", form); a.StatusCode != http.StatusOK || !strings.Contains(a.body, "Type 1,200 to confirm") {
		t.Errorf("confirmed without any number: %d", a.StatusCode)
	}
	live(2400)
	form.Set("count", "1200")
	form.Set("typed", "1,200")
	s.finish(form, "n=1200", 10*time.Millisecond)
	live(1200)

	s.dash.PretendSlow(0) // a part is 500 jobs
	form = url.Values{"csrf": form["csrf"], "queue": {"bulk"}, "state": {"cancelled"}, "action": {"replay"}, "confirm": {"1"}, "count": {"1200"}, "typed": {"1200"}}
	a := s.do(http.MethodPost, "jobs/bulk", form)
	s.has(a.body, "500 of 1,200 jobs", "data-continue", `name="so_far" value="500"`, "Stop")
	live(1700)
	form.Set("going", "1")
	form.Set("so_far", "500")
	form.Set("next", hidden(a.body, "next"))
	s.finish(form, "n=1200", 0)
	live(2400)
}

// forgetful is a queue whose reports of actions on many jobs got lost on the way.
type forgetful struct {
	*gq.Client
	late int // calls that end at the deadline
}

func (f *forgetful) CancelWhere(ctx context.Context, q gq.Query, reason string) (gq.CancelReport, error) {
	if f.late--; f.late < 0 {
		return f.Client.CancelWhere(ctx, q, reason)
	}
	return gq.CancelReport{}, fmt.Errorf("cancel many: %w", errors.Join(gq.ErrTimeout, context.DeadlineExceeded))
}

func (f *forgetful) PurgeWhere(ctx context.Context, q gq.Query) (int, error) {
	if f.late--; f.late < 0 {
		return f.Client.PurgeWhere(ctx, q)
	}
	return 0, fmt.Errorf("purge many: %w", gq.ErrTimeout)
}

// An action that has begun does not ask again, also if nobody knows how far it has come.
func TestAnActionIsConfirmedOnce(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.many(2400)
	q := &forgetful{Client: s.queue}
	s.serveAlso(q, dashboard.Options{})
	for _, action := range []url.Values{{"type": {"import.1"}, "action": {"cancel"}}, {"type": {"import.1"}, "action": {"purge"}, "state": {"cancelled"}}} {
		q.late = 2
		action.Set("csrf", s.token(s.get("jobs?type=import.1", http.StatusOK)))
		action.Set("confirm", "1")
		action.Set("count", "1200")
		action.Set("typed", "1200")
		for range 2 {
			page := s.do(http.MethodPost, "jobs/bulk", action).body
			s.has(page, "0 of 1,200 jobs", "The last part changed nothing", `name="going" value="1"`, ">Continue</button>")
			s.lacks(page, "to confirm")
			action.Del("typed")
			for _, name := range []string{"going", "so_far", "count"} {
				action.Set(name, hidden(page, name))
			}
		}
		a := s.do(http.MethodPost, "jobs/bulk", action)
		if to := a.Header.Get("Location"); a.StatusCode != http.StatusSeeOther || !strings.Contains(to, "n=1200") {
			t.Errorf("%s led to %d %s", action.Get("action"), a.StatusCode, to)
		}
	}
}

// hidden returns the value of a hidden field.
func hidden(page, name string) string {
	_, value, _ := strings.Cut(page, `name="`+name+`" value="`)
	value, _, _ = strings.Cut(value, `"`)
	return value
}

// finish sends a form until the action has come to its end. Each part takes twice as long as the one before.
func (s *site) finish(form url.Values, want string, part time.Duration) {
	s.Helper()
	for range 20 {
		s.dash.PretendSlow(part)
		part *= 2
		a := s.do(http.MethodPost, "jobs/bulk", form)
		if a.StatusCode == http.StatusSeeOther {
			if to := a.Header.Get("Location"); !strings.Contains(to, want) {
				s.Errorf("the action led to %s, want %s", to, want)
			}
			return
		}
		if a.StatusCode != http.StatusOK {
			s.Fatalf("%d %s", a.StatusCode, a.body)
		}
		for _, name := range []string{"going", "so_far", "next", "count"} {
			form.Set(name, hidden(a.body, name))
		}
		form.Set("typed", form.Get("count"))
	}
	s.Fatal("the action does not end")
}
