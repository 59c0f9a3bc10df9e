package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

func TestChartsOnPages(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.has(s.get("", http.StatusOK), "Nothing in this time", "Nothing happened in the last hour.")
	for range 3 {
		s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
		if _, err := s.queue.Complete(t.Context(), s.claim("mail").State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	s.kill("billing", "card.charge", "no answer")
	for path, want := range map[string][2]string{
		"":                                 {"The last hour", "4 jobs were submitted, 3 completed and 1 failed"},
		"?range=day":                       {"The last day", "4 jobs were submitted, 3 completed and 1 failed"},
		"?range=month":                     {"The last month", "4 jobs were submitted, 3 completed and 1 failed"},
		"?range=nonsense":                  {"The last hour", "4 jobs were submitted"},
		"queue?name=mail":                  {"The last hour", "3 jobs were submitted, 3 completed and 0 failed"},
		"queue?name=billing&range=month":   {"The last month", "1 job was submitted, 0 completed and 1 failed"},
		"queue?name=billing&range=%3Cb%3E": {"The last hour", "1 job was submitted"},
	} {
		page := s.get(path, http.StatusOK)
		s.has(page, want[0], want[1], `role="img"`, "<desc ", "data-clock", "range=hour", "range=day", "range=month")
		if n := strings.Count(page, `class="m-`); n != 7+3+4 && n != 7+2+4 { // samples in legends, and what is drawn
			t.Errorf("%s draws %d marks", path, n)
		}
		s.lacks(page, "style=", "NaN", "range=\u003c")
	}
	s.has(s.get("queue?name=mail&range=day", http.StatusOK), `href="./queue?name=mail&amp;range=month#history"`, "Figures of the last day")
}

func TestOverviewHasTheFiguresOfQueues(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.kill("mail", "email.send", "no answer")
	for range 3 {
		s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
		if _, err := s.queue.Complete(t.Context(), s.claim("mail").State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"", "queues"} {
		page := s.get(path, http.StatusOK)
		s.has(page, "Throughput", ">0.07<", "Failure rate", ">25 %<", "Wait p50 / p99", "Run p50 / p99", "Oldest waits", "Workers")
	}
}

func TestWorkersThatClaimByAPatternCount(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail.eu", Type: "email.send"})
	s.submit(gq.Spec{Queue: "other", Type: "t"})
	s.has(s.get("queue?name=mail.eu", http.StatusOK), "No worker has claimed")
	if _, err := s.queue.Claim(t.Context(), gq.ClaimRequest{Worker: "by-pattern", Queues: []string{"mail.*"}, N: 1}); err != nil {
		t.Fatal(err)
	}
	s.lacks(s.get("queue?name=mail.eu", http.StatusOK), "No worker has claimed")
	s.has(s.get("queue?name=other", http.StatusOK), "No worker has claimed")
}
